"""Sentences that tests train vocabularies on."""

ANIMALS = ["the small dog", "a cat", "the old horses", "my bird", "those grey mice", "a quick fox"]
DEEDS = ["sleeps", "runs home", "will eat an apple", "jumped over the lazy wall", "does not see us"]
SENTENCES = [f"{animal} {deed}." for animal in ANIMALS for deed in DEEDS]
