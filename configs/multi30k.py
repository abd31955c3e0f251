"""A small model for the 29,000 captions of Multi30k, English to German.

command   python train.py configs/multi30k.py
data      multi30k/en_de: downloaded once (1.3 MB), or read from the folder MULTI30K_DIR
time      about 55 minutes on two cores of an AMD EPYC (Zen 3), by the speed of 200 updates
score     41.4 BLEU on test_2016_flickr with seeds 0, 1 and 2 each, and 41.8, 41.8 and 41.7 on
          lower-cased text; each interval is plus or minus 1.7
          nrefs:1|bs:1000|seed:12345|case:mixed|eff:no|tok:13a|smooth:exp|version:2.6.0
settings  docs/experiments.md#recipes-for-multi30k
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
        dropout=0.3,
        norm="pre",
        positions="rotary",
    ),
    data=DataConfig(dataset="multi30k/en_de", vocab_size=8000, batch_tokens=4096, num_buckets=16),
    optimizer=OptimizerConfig(
        name="muon", scale=1.8, warmup_steps=250, cooldown_steps=2000, weight_decay=0.3
    ),
    train=TrainConfig(steps=4000, validate_every=1000),
    decode=DecodeConfig(beam_size=5, alpha=1.0, normalisation="length"),
)
