"""The size of BERT-large (Devlin et al., 2019): an encoder alone, which predicts masked words.

command   python train.py configs/bert_large.py (text of your own, one sentence per line)
size      333,583,664 parameters (`python -m benchmarks.parameter_table`); the paper gives 340
          million for BERT-large. 2.6 million of the difference are what this model lacks: 522
          tokens, segment embeddings, a norm of the embeddings, a pooler and a layer before the
          logits; with them, it has the 336.2 million of the published weights
ours      not trained by us: this config gives a size, not a result
"""

from transformer.config import Config, DataConfig, ModelConfig, OptimizerConfig, TrainConfig

config = Config(
    model=ModelConfig(
        source_vocab_size=30_000,
        target_vocab_size=30_000,
        encoder_layers=24,
        decoder_layers=0,
        d_model=1024,
        num_heads=16,
        d_ff=4096,
        dropout=0.1,
        attention_dropout=0.1,
        activation="gelu",
        attention_bias=True,
        output_bias=True,
        embedding_scale=False,
        positions="learned",
        max_positions=512,
        recompute=True,
        dtype="bfloat16",
    ),
    data=DataConfig(
        dataset="",
        train_files=("text.txt",),
        validation_files=("validation.txt",),
        source="en",
        target="",
        vocab_size=30_000,
        max_length=512,
        windows=True,
        batch_tokens=131_072,
    ),
    optimizer=OptimizerConfig(warmup_steps=10_000),
    train=TrainConfig(
        steps=1_000_000, label_smoothing=0.0, micro_batches=8, validate_every=5000, best_by="loss"
    ),
)
