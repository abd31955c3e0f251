"""The best single model of Multi30k that we know within three hours: a student of two others.

command   python train.py configs/multi30k_best.py
data      the captions, and the translations of an ensemble; docs/training.md#students says how to
          make them
time      2.5 hours on two cores of an AMD EPYC (Zen 4): 78 minutes for both teachers at once, with
          a core each, 10 for the translations on one core, 62 for the student on one core
score     41.7 and 41.9 BLEU on test_2016_flickr with seeds 0 and 1, and 42.1 and 42.4 on
          lower-cased text; each interval is plus or minus 1.6
          nrefs:1|bs:1000|seed:12345|case:mixed|eff:no|tok:13a|smooth:exp|version:2.6.0
settings  those of configs/multi30k.py; docs/experiments.md#recipes-for-multi30k
"""

from pathlib import Path

from transformer.config.files import load_config

config = load_config(Path(__file__).with_name("multi30k.py")).with_settings(
    {
        "data.dataset": "",
        "data.train_files": (
            *("data/multi30k/train.en", "data/multi30k/train.de"),
            *("data/multi30k/train.en", "data/multi30k/taught.de"),
        ),
        "data.validation_files": ("data/multi30k/validation.en", "data/multi30k/validation.de"),
        "data.test_files": ("data/multi30k/test.en", "data/multi30k/test.de"),
    }
)
