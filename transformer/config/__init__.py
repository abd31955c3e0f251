"""Every setting, the rules between them, and the files that hold them."""

from transformer.config.settings import (
    Config,
    DataConfig,
    DecodeConfig,
    GenerateConfig,
    ModelConfig,
    OptimizerConfig,
    TrainConfig,
)

__all__ = [
    "Config",
    "DataConfig",
    "DecodeConfig",
    "GenerateConfig",
    "ModelConfig",
    "OptimizerConfig",
    "TrainConfig",
]
