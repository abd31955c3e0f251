"""From words to a checked config, and from mistakes to a sentence and an exit code."""
