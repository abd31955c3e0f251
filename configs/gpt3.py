"""The size of GPT-3 (Brown et al., 2020): a decoder alone, which predicts the next word.

command   not run by us: it takes a thousand accelerators; this config gives a size, not a result
size      174,604,259,328 parameters (`python -m benchmarks.parameter_table`, which computes
          shapes only); the paper gives 175 billion for GPT-3. Half of the layers of GPT-3 have
          sparse attention, which does not change the number of parameters
"""

from transformer.config import Config, DataConfig, ModelConfig, OptimizerConfig, TrainConfig

config = Config(
    model=ModelConfig(
        target_vocab_size=50_257,
        encoder_layers=0,
        decoder_layers=96,
        d_model=12_288,
        num_heads=96,
        d_ff=4 * 12_288,
        dropout=0.0,
        norm="pre",
        norm_epsilon=1e-5,
        activation="gelu_tanh",
        attention_bias=True,
        embedding_scale=False,
        positions="learned",
        max_positions=2048,
        recompute=True,
        dtype="bfloat16",
    ),
    data=DataConfig(
        dataset="",
        train_files=("text.txt",),
        validation_files=("validation.txt",),
        source="",
        target="en",
        tokenizer="bpe",
        vocab_size=50_257,
        byte_fallback=True,
        max_length=2048,
        windows=True,
        batch_tokens=3_200_000,
    ),
    optimizer=OptimizerConfig(warmup_steps=3000, beta_2=0.95, epsilon=1e-8, clip_norm=1.0),
    train=TrainConfig(steps=94_000, label_smoothing=0.0, best_by="loss"),
)
