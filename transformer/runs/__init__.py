"""The run folder: config, vocabulary, checkpoints and metrics."""
