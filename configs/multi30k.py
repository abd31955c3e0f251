from transformer.config import Config, DataConfig, DecodeConfig, ModelConfig, OptimizerConfig, TrainConfig

config = Config(
    model=ModelConfig(encoder_layers=4, decoder_layers=4, d_model=128, num_heads=4, d_ff=256, dropout=0.3, norm="pre"),
    data=DataConfig(dataset="multi30k/en_de", vocab_size=8000, batch_tokens=4096),
    optimizer=OptimizerConfig(warmup_steps=600, scale=1.0),
    train=TrainConfig(steps=6000, validate_every=500),
    decode=DecodeConfig(beam_size=5),
)
