"""Scores of a translator while it is trained, and their limits."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from transformer.config import DataConfig
from transformer.evaluation.scores import METRICS, References, doubt, few_long, value_of

SAMPLE = 1_000
"""References that are encoded and decoded, to see what the vocabulary cannot write."""


@dataclass(frozen=True)
class ValidationScorer:
    """Scores of the validation set, and which of them chooses the best checkpoint.

    best_by      `train.best_by`
    pairs        raw text; none for models of one side, which are scored by their losses alone
    """

    data: DataConfig
    best_by: str
    pairs: Sequence[tuple[str, str]]

    @property
    def labels(self) -> Mapping[str, str]:
        """How logs call the scores of translations."""
        return {name: metric.label for name, metric in METRICS.items()}

    @cached_property
    def references(self) -> References:
        """What translations are scored against."""
        return References.of(self.data, self.pairs)

    @cached_property
    def few_long(self) -> str:
        """Why BLEU says little of these references; "" if it does not."""
        return few_long(self.references) if self.pairs else ""

    @property
    def chosen_by(self) -> str:
        """What `auto` means: BLEU, chrF where few references have four words, the loss where there
        are none."""
        if self.best_by != "auto":
            return self.best_by
        return "loss" if not self.pairs else "chrf" if self.few_long else "bleu"

    def scores(self, outputs: Sequence[str]) -> dict[str, float]:
        """BLEU, and the metric that chooses, if it is another."""
        names = metrics_of(self.chosen_by) if self.pairs else []
        return {name: value_of(name, outputs, self.references) for name in names}

    def remarks(self, reproduce: Callable[[Sequence[str]], list[str]]) -> Iterator[str]:
        """What a user should know before training; `reproduce` encodes and decodes texts."""
        if not self.pairs:
            return
        if unknown := doubt(self.data.target, self.data.bleu_tokenizer):
            yield unknown
        if self.few_long and self.best_by == "auto":
            yield f"chrF selects the best checkpoint (train.best_by auto): {self.few_long}"
        elif self.few_long and self.best_by == "bleu":
            yield (
                "BLEU selects the best checkpoint, but chrF would be more reliable: "
                f"{self.few_long}"
            )
        if ceiling := self.ceiling(reproduce):
            yield ceiling

    def ceiling(self, reproduce: Callable[[Sequence[str]], list[str]]) -> str:
        """Which references the vocabulary cannot write, and the highest possible scores; "" if it
        can write all."""
        references = self.references.at(range(min(SAMPLE, len(self.pairs))))
        [texts] = references.texts
        again = reproduce(texts)
        changed = [both for both in zip(texts, again) if both[0].split() != both[1].split()]
        if not changed:
            return ""
        best = [value_of(name, again, references) for name in ("bleu", "chrf")]
        (wanted, written), count = changed[0], len(changed)
        return (
            f"{count:,} of {len(texts):,} validation references cannot be written with the target "
            f"vocabulary, such as {wanted[:60]!r}, which becomes {written[:60]!r}: a perfect "
            f"translator would have BLEU {best[0]:.1f} and chrF {best[1]:.1f}"
        )


def metrics_of(best_by: str) -> list[str]:
    """The metrics of a validation: BLEU, and the one that chooses, if it is another."""
    return [*dict.fromkeys(name for name in ("bleu", best_by) if name in METRICS)]
