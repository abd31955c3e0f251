"""The paper's big model on WMT 2014 English-German (table 3, row "big").

command   python train.py configs/wmt14_big.py
paper     28.4 BLEU on newstest2014: tokenized, compounds split, average of the last 20 checkpoints
          (section 6.1); 300,000 updates, 3.5 days on 8 P100
ours      not measured yet. Compare with 27.8 to 28.6 sacreBLEU (13a, cased, wmt14/full)
needs     an accelerator; one download of 1.7 GB (docs/data.md)
"""

from transformer.config import Config, DataConfig, ModelConfig, OptimizerConfig, TrainConfig

config = Config(
    model=ModelConfig(
        d_model=1024,
        num_heads=16,
        d_ff=4096,
        dropout=0.3,
        dtype="bfloat16",
    ),
    data=DataConfig(
        dataset="wmt14_translate/de-en",
        tokenizer="bpe",
        vocab_size=37_000,
        batch_tokens=25_000,
    ),
    optimizer=OptimizerConfig(warmup_steps=4000),
    train=TrainConfig(steps=300_000, validate_every=1500, keep_last=20, average_last=20),
)
