"""A small model for the 29,000 captions of Multi30k, English to German.

command   python train.py configs/multi30k.py
data      multi30k/en_de: downloaded once (1.3 MB), or read from the folder MULTI30K_DIR
time      about 43 minutes on two cores of a Zen 4; 145 minutes on one core of an Intel Xeon,
          with other work on the machine
score     39.5, 40.1 and 39.6 BLEU on test_2016_flickr with seeds 0 to 2 (each plus or minus 1.6);
          39.9, 40.5 and 40.0 on lower-cased text; an ensemble of two has 40.7, and 41.1 on
          lower-cased text
          nrefs:1|bs:1000|seed:12345|case:mixed|eff:no|tok:13a|smooth:exp|version:2.6.0
settings  chosen on the validation set; docs/experiments.md has slower recipes that are up to 1.0
          BLEU better there
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
    ),
    data=DataConfig(dataset="multi30k/en_de", vocab_size=8000, batch_tokens=4096, num_buckets=28),
    optimizer=OptimizerConfig(scale=1.8, warmup_steps=1000, cooldown_steps=3000),
    train=TrainConfig(steps=8000, validate_every=1000),
    decode=DecodeConfig(beam_size=5, alpha=1.0, normalisation="length"),
)
