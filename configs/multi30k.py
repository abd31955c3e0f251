"""A small model for the 29,000 captions of Multi30k, English to German.

command   python train.py configs/multi30k.py
data      multi30k/en_de: downloaded once (1.3 MB), or taken from MULTI30K_DIR
time      37 minutes of training on two CPU cores, about 10,400 target tokens/s once compiled
score     38.9 BLEU on test_2016_flickr (37.3 to 40.5) after the last update, beam 5, no averaging;
          37.1 after 15 minutes (docs/benchmarks.md has the curve)
          nrefs:1|bs:1000|seed:12345|case:mixed|eff:no|tok:13a|smooth:exp|version:2.6.0
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
        encoder_layers=4,
        decoder_layers=4,
        d_model=128,
        num_heads=4,
        d_ff=256,
        dropout=0.2,
        norm="pre",
    ),
    data=DataConfig(dataset="multi30k/en_de", vocab_size=8000, batch_tokens=1024, num_buckets=28),
    optimizer=OptimizerConfig(warmup_steps=1000, cooldown_steps=5000),
    train=TrainConfig(steps=20_000, validate_every=1000),
    decode=DecodeConfig(beam_size=5),
)
