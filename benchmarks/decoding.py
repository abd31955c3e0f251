"""Decoding with ours against CTranslate2 and Hugging Face, all with the same weights, on the CPU.

    python -m benchmarks.decoding
    python -m benchmarks.decoding --sentences 1 --beams 4 --contestants ctranslate2-int8
    python -m benchmarks.decoding --shape tiny --rounds 2      tries the script

Needs the peers: pip install -e '.[bench]'

Shape B (6+6 layers, d_model 512, d_ff 2048, 8 heads, vocabulary 8,000, no tied embeddings, biases
in attention); source sentences of 32 tokens with the end of sentence; exactly 32 tokens of output,
since the bias on its logit makes the end of sentence impossible. 1 and 32 sentences, greedy and
beam 4, no length penalty, all cores. A repetition goes from token ids (names of tokens for
CTranslate2) to token ids: encoder, cache and search. The contestants:

    ours-float32           `translator.search_batch`, with which all are compared
    ours-bfloat16          the same with weights and matrix products in 16 bits
    ctranslate2-float32    one batch on all cores, or one on each: what is faster
    ctranslate2-int8       the same with its weights, and the inputs of its products, in 8 bits
    marian                 MarianMTModel.generate of Hugging Face, float32, with its cache

Beside the times stand the share of the sentences that get the same 32 tokens as from ours-float32,
and the mean of what their outputs lose in log-probability, as our model in float32 has it. Weights
are random, but such that outputs do not repeat one token, which would make equal tokens mean
little (see `varied_params`); how many of 32 tokens differ from each other is printed.

Time: each in a process of its own, a repetition each in turn. "compile s" is what the first took
longer than the median: compiling, and with the others what else happens once. The floor: see
`floor_seconds`.

Memory: resident memory of those processes (Linux), in MB of 10^6 bytes: at most, and of it what
came after importing jax and CTranslate2, which all do (torch, which marian alone needs, comes
after). Compiling is over when it is measured.
"""

import tempfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Literal, NamedTuple, get_args

import jax
import numpy as np
from jax import Array

from benchmarks.measure import (
    Ceilings,
    ceilings,
    contest,
    cores,
    machine,
    memory_cells,
    milliseconds,
    parse_lists,
    quickest,
    require,
    table,
    versions,
)
from benchmarks.shapes import LENGTH, SHAPES, VOCABULARY, Shape, ShapeName, model_config
from benchmarks.work import floor_seconds, never_ending
from transformer.commands.program import run_command
from transformer.config import DecodeConfig, ModelConfig
from transformer.config.settings import BeamSize, Positive
from transformer.data.batching import pad_sources
from transformer.decoding.ensemble import make_ensemble
from transformer.decoding.scoring import log_probabilities
from transformer.decoding.translator import search_batch
from transformer.interchange.ctranslate2 import (
    Translator,
    model_spec,
    open_translator,
    save_model,
)
from transformer.model.params import Params, init_params, tables

BASELINE = "ours-float32"
OURS = {
    BASELINE: DecodeConfig(dtype="float32"),
    "ours-bfloat16": DecodeConfig(dtype="bfloat16"),
}
NAMES = ["<blank>", "<s>", "</s>", "<unk>", *(f"token{n}" for n in range(4, VOCABULARY))]
"""What CTranslate2 calls our ids."""
Other = Literal["ours-bfloat16", "ctranslate2-float32", "ctranslate2-int8", "marian"]


@dataclass(frozen=True)
class Decoding:
    """Compare decoding with ours and with others."""

    shape: ShapeName = "B"
    """Model shape."""
    sentences: tuple[Positive, ...] = (1, 32)
    """Sentences decoded together."""
    beams: tuple[BeamSize, ...] = (1, 4)
    """Beam sizes; 1: greedy."""
    rounds: Positive = 15
    """Repetitions of each contestant that are timed."""
    contestants: tuple[Other, ...] = get_args(Other)
    """With whom ours is compared."""


class Task(NamedTuple):
    """What is decoded, with `length` tokens of source and of output; `folder` holds the model for
    CTranslate2, which computes on the `device` cpu or cuda."""

    model: ModelConfig
    folder: Path
    sentences: int
    beam: int
    length: int = LENGTH
    device: str = "cpu"


Decoder = Callable[[], np.ndarray]
"""Decodes; returns the tokens [B, L] of the best outputs."""


def main(words: list[str]) -> None:
    command = parse_lists(Decoding, words, "python -m benchmarks.decoding")
    packages = ["ctranslate2", *["torch", "transformers"] * ("marian" in command.contestants)]
    require(*packages)
    model = forced_model(SHAPES[command.shape])
    params = varied_params(model)
    print(f"{machine()}\n{versions('jax', *packages)}")
    most = ceilings()
    print(f"{most}\nshape {command.shape}: {SHAPES[command.shape]}, vocabulary {VOCABULARY:,}\n")
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        save_model(model_spec(model, params, (NAMES, NAMES), 2 * LENGTH), Path(folder))
        for sentences in command.sentences:
            for beam in command.beams:
                task = Task(model, Path(folder), sentences, beam)
                rows += compare(command, task, params, most)
    print(f"\n{command.rounds} rounds, contestants in turn\n\n{table(rows)}")


def forced_model(shape: Shape) -> ModelConfig:
    """Untied, since random weights with a shared embedding repeat the token that they last read."""
    model = model_config(shape, attention_bias=True)
    return replace(model, tying="none", output_bias=True)


def varied_params(model: ModelConfig) -> Params:
    """Random parameters whose outputs depend on every weight, and never end.

    Freshly initialised, each sublayer adds as much as it is given, and after a few the token that
    was read is forgotten. Here sublayers add a quarter of that, and biases and norms are not all
    zeros and ones.
    """

    def vary(path: tuple, leaf: Array) -> Array:
        name = jax.tree_util.keystr(path, simple=True, separator=".")
        last = name.rpartition(".")[2]
        if last in ("w_o", "w_2"):
            return leaf / 4
        if last in ("scale", "bias", "output_bias") or last.startswith("b_"):
            key = jax.random.key(zlib.crc32(name.encode()))
            return leaf + 0.05 * jax.random.normal(key, leaf.shape)
        return leaf

    params = jax.tree_util.tree_map_with_path(vary, init_params(model, jax.random.key(0)))
    return never_ending(params)


def compare(command: Decoding, task: Task, params: Params, most: Ceilings) -> list[dict[str, str]]:
    """A row for each contestant, for one number of sentences and one beam."""
    names = [BASELINE, *command.contestants]
    outcomes = contest({name: (decoder, name, task) for name in names}, command.rounds)
    outputs = {name: outcome.result for name, outcome in outcomes.items()}
    ours = outcomes[BASELINE].timing.median

    sources = padded_sources(task)
    scores = {
        name: log_probabilities(task.model, params, sources, tokens)
        for name, tokens in outputs.items()
    }
    floor = floor_seconds(task.model, task.sentences, task.beam, most)
    variety = np.mean([len(set(row)) for row in outputs[BASELINE].tolist()])
    search = "greedy" if task.beam == 1 else f"beam {task.beam}"
    print(f"sentences: {task.sentences}, {search}: {variety:.0f} different tokens in an output")
    return [
        {
            "sentences": str(task.sentences),
            "search": search,
            "contestant": name,
            **milliseconds(timing),
            "compile s": f"{max(first - timing.median, 0):.1f}",
            "float32 floor ms": f"{1000 * floor:.1f}",
            "time / ours": f"{timing.median / ours:.2f}",
            "same tokens": f"{np.mean((outputs[name] == outputs[BASELINE]).all(1)):.0%}",
            "nats lost": f"{np.mean(scores[BASELINE] - scores[name]):.1e}",
            **memory_cells(memory),
        }
        for name, (timing, first, _, memory) in outcomes.items()
    ]


def decoder(name: str, task: Task) -> Decoder:
    """A contestant. Peers' packages are imported here, to be in no other's memory."""
    if name in OURS:
        return our_decoder(OURS[name], task)
    if name == "marian":
        return marian_decoder(task)
    return ctranslate2_decoder(name.partition("-")[2], task)


def our_decoder(settings: DecodeConfig, task: Task) -> Decoder:
    # The longest output is the source without its end, and one more token.
    settings = replace(settings, beam_size=task.beam, alpha=0, max_extra_length=1)
    ensemble = make_ensemble([(task.model, varied_params(task.model))], settings.dtype)
    sources = padded_sources(task)

    def decode() -> np.ndarray:
        return np.asarray(search_batch(ensemble, settings, sources).tokens)[:, 0, : task.length]

    return decode


def ctranslate2_decoder(compute_type: str, task: Task) -> Decoder:
    """At its best: one batch on all cores, or one on each. It adds the source's end itself."""
    ids = {name: number for number, name in enumerate(NAMES)}
    sentences = [[NAMES[number] for number in row] for row in random_sources(task)]

    def decode(translator: Translator, batch: int) -> np.ndarray:
        results = translator.translate_batch(
            sentences,
            max_batch_size=batch,
            beam_size=task.beam,
            length_penalty=0,
            max_decoding_length=task.length,
        )
        return np.array([[ids[name] for name in result.hypotheses[0]] for result in results])

    settings, most = {}, cores() if task.device == "cpu" else 1
    for workers in sorted({1, min(most, task.sentences)}):
        translator = open_translator(
            task.folder, compute_type, cores() // workers, workers, task.device
        )
        again = partial(decode, translator, -(-task.sentences // workers))
        again()  # the first call is slower
        settings[f"{workers} at once"] = again
    best = quickest(settings)
    print(f"CTranslate2 {compute_type}: best with {best}", flush=True)
    return settings[best]


def marian_decoder(task: Task) -> Decoder:
    import torch

    torch.set_num_threads(cores())
    marian = untied_marian(task.model)
    source = torch.tensor(padded_sources(task)).long()

    def decode() -> np.ndarray:
        with torch.inference_mode():
            output = marian.generate(
                source,
                attention_mask=torch.ones_like(source),
                num_beams=task.beam,
                do_sample=False,
                max_new_tokens=task.length,
                use_cache=True,
            )
        return output[:, 1:].numpy()  # without BOS

    return decode


def untied_marian(model: ModelConfig):
    """Hugging Face's model with the weights of `varied_params`."""
    import torch

    from benchmarks.marian_transformer import MarianTransformer, copy_weights
    from benchmarks.torch_transformer import as_tensor

    params = varied_params(model)
    marian = MarianTransformer(model, LENGTH).marian.eval()
    copy_weights(params, marian)  # the shared embedding becomes the source's
    _, target, output = map(as_tensor, tables(params.embedding))
    marian.model.decoder.embed_tokens = torch.nn.Embedding.from_pretrained(target)
    marian.lm_head.weight = torch.nn.Parameter(output)
    marian.final_logits_bias = as_tensor(params.embedding.output_bias)[None]
    marian.generation_config.forced_eos_token_id = None
    return marian


def random_sources(task: Task) -> np.ndarray:
    """Sentences without their ends, which are left for others to add."""
    shape = task.sentences, task.length - 1
    return np.random.default_rng(0).integers(4, VOCABULARY, shape)


def padded_sources(task: Task) -> np.ndarray:
    return pad_sources(random_sources(task), task.sentences, task.length)


if __name__ == "__main__":
    run_command(main)
