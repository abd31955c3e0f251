"""A small masked model of the phrasebook's German, in minutes on two CPU cores."""

from transformer.config import Config, DataConfig, ModelConfig, OptimizerConfig, TrainConfig

config = Config(
    model=ModelConfig(
        encoder_layers=4,
        decoder_layers=0,
        d_model=128,
        num_heads=4,
        d_ff=512,
        dropout=0.1,
        norm="pre",
    ),
    data=DataConfig(
        dataset="phrasebook/en_de",
        source="de",
        target="",
        vocab_size=1000,
        batch_tokens=2048,
        num_buckets=4,
    ),
    optimizer=OptimizerConfig(warmup_steps=400, cooldown_steps=600),
    train=TrainConfig(
        steps=1500, validate_every=500, keep_last=2, average_last=2, best_by="loss",
        label_smoothing=0.0,
    ),
)  # fmt: skip
