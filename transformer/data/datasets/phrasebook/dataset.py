"""Phrasebook as a TFDS dataset: English and German sentences from a grammar of the project's own.

Nothing is downloaded. Every English sentence has one German translation, and what makes that more
than substitution is in it: three genders, three cases, adjective endings, plurals, pronouns that
follow the gender of what they stand for, the perfect with haben and sein, modal verbs, separable
verbs, nicht and kein, questions, the verb in second place after what stands in front and in last
place in subordinate clauses.

Every test sentence holds a verb with an object, an adjective with a noun, or a combination of
constructions that training never shows; the rule is `splits.held_out`. Validation is
like training. What can be had without learning, BLEU on the test split (sacreBLEU 13a, cased):

    nearest training neighbour  14.8
    word-by-word dictionary      8.8

as `python -m benchmarks.phrasebook_baselines` prints them.
"""

from collections.abc import Iterator
from typing import ClassVar

import tensorflow_datasets as tfds

from transformer.data.datasets.phrasebook.splits import Sentence, splits


class Phrasebook(tfds.core.GeneratorBasedBuilder):
    """TFDS builder `phrasebook/en_de`: 100,000 train, 1,000 validation, 2,000 test sentences."""

    name = "phrasebook"
    VERSION = tfds.core.Version("1.0.0")
    BUILDER_CONFIGS: ClassVar = [
        tfds.core.BuilderConfig(name="en_de", description="English and German")
    ]

    def _info(self) -> tfds.core.DatasetInfo:
        return tfds.core.DatasetInfo(
            builder=self,
            description=__doc__,
            features=tfds.features.Translation(("en", "de")),
            supervised_keys=("en", "de"),
            disable_shuffling=True,  # the sentences are in random order already
        )

    def _split_generators(self, dl_manager: tfds.download.DownloadManager) -> dict:
        return {split: self._generate_examples(found) for split, found in splits().items()}

    def _generate_examples(self, sentences: list[Sentence]) -> Iterator[tuple[int, dict]]:
        for number, sentence in enumerate(sentences):
            yield number, {"en": sentence.english, "de": sentence.german}
