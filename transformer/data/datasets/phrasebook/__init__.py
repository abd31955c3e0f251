"""A grammar of English and German, and the sentences that it makes, as a TFDS dataset."""
