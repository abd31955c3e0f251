"""The paper's base model on WMT 2014 English-German (table 3, row "base").

command   python train.py configs/wmt14_base.py
paper     27.3 BLEU on newstest2014: tokenized, compounds split, average of the last 5 checkpoints
          (section 6.1); 100,000 updates of about 25,000 source and 25,000 target tokens, 12 hours
          on 8 P100
ours      not measured yet. Faithful reproductions reach 26.3 to 27.0 sacreBLEU (13a, cased,
          wmt14/full)
needs     an accelerator; one download of 1.7 GB (docs/data.md)
"""

from transformer.config import Config, DataConfig, ModelConfig, OptimizerConfig, TrainConfig

config = Config(
    model=ModelConfig(dtype="bfloat16"),
    data=DataConfig(
        dataset="wmt14_translate/de-en",
        tokenizer="bpe",
        vocab_size=37_000,
        batch_tokens=25_000,
    ),
    optimizer=OptimizerConfig(warmup_steps=4000),
    train=TrainConfig(steps=100_000, validate_every=1500, keep_last=5, average_last=5),
)
