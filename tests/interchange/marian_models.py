"""Random MarianMTModels as their makers save them, with tokenizers of the phrasebook's words."""

import io
import json
from pathlib import Path

import sentencepiece

SHAPES = {
    "as OPUS-MT": {"scale_embedding": True, "activation_function": "swish"},
    "relu, two layers against one": {"encoder_layers": 2, "activation_function": "relu"},
    "gelu, one head": {"encoder_attention_heads": 1, "decoder_attention_heads": 1},
    "five heads": {
        "d_model": 40, "encoder_attention_heads": 5, "decoder_attention_heads": 5,
        "activation_function": "gelu_new", "decoder_layers": 3,
    },
    "untied": {"tie_word_embeddings": False, "activation_function": "silu"},
    "two vocabularies": {"share_encoder_decoder_embeddings": False, "scale_embedding": True},
    "two vocabularies, untied": {
        "share_encoder_decoder_embeddings": False, "tie_word_embeddings": False,
    },
    "one vocabulary, tables apart": {
        "share_encoder_decoder_embeddings": False, "scale_embedding": True, "encoder_layers": 2,
    },
    "positions of its own": {"max_position_embeddings": 90, "scale_embedding": True},
    "begins with a token of its own": {"decoder_start_token_id": "<s>"},
}  # fmt: skip


ODD = [
    "😀 is a smile 👩\u200d👩\u200d👧", "a\x00b", "مرحبا بالعالم", "日本語のテキスト", "żółć ﬁ ½ ①",
    ">>fra<< the dog sleeps.", ">>deu<< the dog", ">>fra", "<<",
    "  two  blanks  ", "\ttab", "a" * 300, "▁ the ▁", "...", "Ünïcödé\u200bzero", "\u202eabc",
]  # fmt: skip
"""Sentences that a tokenizer may not expect."""


def train_spm(texts: list[str], size: int) -> bytes:
    """A SentencePiece model as Marian's: </s> 0, <unk> 1, no other special tokens."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(texts), model_writer=model, vocab_size=size, eos_id=0, unk_id=1,
        bos_id=-1, pad_id=-1, minloglevel=2, num_threads=1,
    )  # fmt: skip
    return model.getvalue()


def pieces_of(model):
    processor = sentencepiece.SentencePieceProcessor()
    processor.load_from_serialized_proto(model)
    return [processor.id_to_piece(number) for number in range(processor.vocab_size())]


def vocabulary(*pieces):
    """Ids as Marian gives them: </s>, <unk>, pieces by another order than the model's, <pad>."""
    names = sorted({name for side in pieces for name in side} - {"</s>", "<unk>"}, key=repr)
    names = ["</s>", "<unk>", *names, "<s>", ">>fra<<", ">>deu<<", "<pad>"]
    return {name: number for number, name in enumerate(names)}


def make_folder(folder: Path, spm: dict[str, bytes], name="as OPUS-MT", generation=None, **more):
    """Writes a folder with a random model of one of SHAPES, changed, and returns the model."""
    import torch
    import transformers

    changes = SHAPES[name] | more
    sides = {side: pieces_of(model) for side, model in spm.items()}
    separate = name.startswith("two vocabularies")
    target = vocabulary(sides["target"], *([] if separate else [sides["source"]]))
    source = vocabulary(sides["source"]) if separate else target
    pad, start = target["<pad>"], target[changes.pop("decoder_start_token_id", "<pad>")]
    special = {"pad_token_id": pad, "decoder_start_token_id": start, "eos_token_id": 0}
    settings = {
        "d_model": 32, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 4,
        "decoder_attention_heads": 4, "encoder_ffn_dim": 48, "decoder_ffn_dim": 48,
        "max_position_embeddings": 400, "vocab_size": len(source), "forced_eos_token_id": 0,
        "decoder_vocab_size": len(target), "init_std": 0.4,
    }  # fmt: skip
    torch.manual_seed(len(name))
    config = transformers.MarianConfig(**(settings | special | changes))
    model = transformers.MarianMTModel(config).eval()
    searched = {
        "num_beams": 4, "max_length": 16, "bad_words_ids": [[pad], [start]],
        "forced_eos_token_id": 0,
    }  # fmt: skip
    model.generation_config = transformers.GenerationConfig(
        **(searched | special | (generation or {}))
    )
    with torch.no_grad():  # biases and norms too; and some sentences should end early
        for parameter in model.parameters():
            if parameter.ndim == 1:
                parameter.add_(0.2 * torch.randn_like(parameter))
        for table in (model.get_input_embeddings(), model.get_output_embeddings()):
            table.weight.mul_(0.4)
        model.final_logits_bias.normal_(std=0.3)
        model.final_logits_bias[0, 0] += 4.5 if separate or not config.tie_word_embeddings else 3
    model.save_pretrained(folder)
    for side, serialised in spm.items():
        (folder / f"{side}.spm").write_bytes(serialised)
    (folder / "vocab.json").write_text(json.dumps(source))
    if separate:
        (folder / "target_vocab.json").write_text(json.dumps(target))
    described = {"source_lang": "en", "target_lang": "de", "separate_vocabs": separate}
    if start != pad:
        described["bos_token"] = "<s>"
    (folder / "tokenizer_config.json").write_text(json.dumps(described))
    return model
