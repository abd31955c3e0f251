"""A student for the phrasebook: a deep encoder and a decoder of one layer.

command   python train.py configs/student.py
data      the translations of a teacher; docs/training.md#students says how to make them
score     98.5 BLEU on the test split with beam 1 and with beam 4; its teacher has 98.6 with beam 4
          nrefs:1|bs:1000|seed:12345|case:mixed|eff:no|tok:13a|smooth:exp|version:2.6.0
settings  those of configs/quickstart.py, with five encoder layers and one decoder layer,
          sinusoidal positions, a longer warm-up and more updates
"""

from transformer.config import (
    Config,
    DataConfig,
    DecodeConfig,
    ModelConfig,
    OptimizerConfig,
    TrainConfig,
)

config = Config(
    model=ModelConfig(
        encoder_layers=5,
        decoder_layers=1,
        d_model=128,
        num_heads=4,
        d_ff=512,
        dropout=0.03,
        norm="pre",
    ),
    data=DataConfig(
        dataset="",
        train_files=("data/phrasebook/train.en", "data/phrasebook/taught.de"),
        validation_files=("data/phrasebook/validation.en", "data/phrasebook/validation.de"),
        test_files=("data/phrasebook/test.en", "data/phrasebook/test.de"),
        vocab_size=1500,
        batch_tokens=2048,
        num_buckets=6,
    ),
    optimizer=OptimizerConfig(name="muon", scale=1.4, warmup_steps=200, cooldown_steps=1000),
    train=TrainConfig(steps=2400, validate_every=800, keep_last=2, average_last=2),
    decode=DecodeConfig(beam_size=1),
)
