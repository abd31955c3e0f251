"""Text in, batches out: corpora, tokenizers, encoded corpora and batches of fixed shapes."""
