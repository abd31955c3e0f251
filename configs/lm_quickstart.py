"""A small language model of the phrasebook's German, in minutes on two CPU cores.

command   python train.py configs/lm_quickstart.py
data      the German side of phrasebook/en_de, generated on your machine
score     perplexity 6.52 per token on the test split (6.40 to 6.65), 0.65 bits per byte, seed 0; an
          interpolated Kneser-Ney trigram model on the same tokens has 13.38
          (`python -m benchmarks.language_models runs/lm_quickstart`)
time      10.3 minutes of training on two cores of an AMD EPYC (Zen 3), with much other work on the
          machine
"""

from transformer.config import Config, DataConfig, ModelConfig, OptimizerConfig, TrainConfig

config = Config(
    model=ModelConfig(
        encoder_layers=0,
        decoder_layers=4,
        d_model=128,
        num_heads=4,
        d_ff=512,
        dropout=0.0,  # none, since few sentences are read twice
        norm="pre",
    ),
    data=DataConfig(
        dataset="phrasebook/en_de",
        source="",
        target="de",
        vocab_size=1000,
        batch_tokens=2048,
        num_buckets=4,
    ),
    optimizer=OptimizerConfig(name="muon", scale=1.4, warmup_steps=200, cooldown_steps=400),
    train=TrainConfig(
        steps=960,
        label_smoothing=0.0,
        validate_every=320,
        best_by="loss",
        keep_last=2,
        average_last=2,
    ),
)
