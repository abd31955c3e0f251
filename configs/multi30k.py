"""A small model for the 29,000 captions of Multi30k, English to German.

command   python train.py configs/multi30k.py
data      multi30k/en_de: downloaded once (1.3 MB), or taken from MULTI30K_DIR
time      56 minutes of training on two CPU cores, 5,100 target tokens/s
score     39.2 BLEU on test_2016_flickr (37.6 to 40.8) after the last update, beam 5, no averaging;
          35.7 after 15 minutes, 38.2 after 39 (docs/benchmarks.md has the curve)
          (with 12 batch shapes and before what docs/design.md lists under "What makes it fast")
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
