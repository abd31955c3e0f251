"""The project's own TFDS builders: importing one of the modules registers its data set."""
