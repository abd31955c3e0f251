"""The data of a config, prepared for training, its plan and its report: tokens and batches."""

from dataclasses import dataclass
from pathlib import Path

from transformer.config import Config
from transformer.data.buckets import BatchPlan, plan_to_score
from transformer.data.corpus import read_pairs
from transformer.data.derived import with_derived
from transformer.data.progress import Log, quiet
from transformer.data.sampling import SampleEpoch, make_epochs
from transformer.data.token_store import TokenPairs, cut, encode_pairs
from transformer.data.vocabularies import (
    Tokenizers,
    check_targets,
    load_tokenizers,
    make_labels,
    make_tokenizers,
)


@dataclass(frozen=True)
class TrainingSet:
    """The training split as tokens, its batch shapes, and a function for the pairs and the plan of
    each epoch if epochs differ (`sample_epoch`)."""

    pairs: TokenPairs
    plan: BatchPlan
    sample_epoch: SampleEpoch | None

    @property
    def first_epoch(self) -> BatchPlan:
        """The plan of the first epoch."""
        return self.plan if self.sample_epoch is None else self.sample_epoch(0)[1]


@dataclass(frozen=True)
class ValidationSet:
    """The validation split as tokens, its batch shapes, and as text for scoring a translator."""

    tokens: TokenPairs
    plan: BatchPlan
    pairs: list[tuple[str, str]]


@dataclass(frozen=True)
class Prepared:
    """All data of a run; `config` has the sizes of the vocabularies."""

    config: Config
    tokenizers: Tokenizers
    training: TrainingSet
    validation: ValidationSet


def prepare_tokenizers(
    config: Config, home: Path | None, new_classes: bool = False, log: Log = quiet
) -> tuple[Config, Tokenizers]:
    """The tokenizers of the run in `home`, or new ones; and the config with their sizes. With
    `new_classes`, a classifier's classes are those of the training split."""
    if home:
        tokenizers = load_tokenizers(home / "tokenizer", config.data)
    else:
        tokenizers = make_tokenizers(config.data, log)
    check_targets(config.data, tokenizers)
    if new_classes and config.data.label_column:
        tokenizers = tokenizers._replace(target=make_labels(config.data))
    return config.with_vocabularies(*tokenizers.identity), tokenizers


def prepare_training(
    config: Config, tokenizers: Tokenizers, log: Log = quiet, derive: bool = False
) -> tuple[Config, TrainingSet]:
    """The training split, and the config; with `derive`, with the derived fields of a translator's
    `decode`."""
    pairs = cut(config.data, encode_pairs(config.data, tokenizers, "train", log))
    if derive and len(config.data.sides) == 2:
        config = with_derived(config, tokenizers, pairs)
    return config, TrainingSet(
        pairs, *make_epochs(config.data, tokenizers, config.train.seed, pairs, log)
    )


def prepare_validation(config: Config, tokenizers: Tokenizers, log: Log = quiet) -> ValidationSet:
    """The validation split."""
    tokens = cut(config.data, encode_pairs(config.data, tokenizers, "validation", log))
    translates = len(config.data.sides) == 2
    return ValidationSet(
        tokens,
        plan_to_score(config, tokens, "validation"),
        list(read_pairs(config.data, "validation")) if translates else [],
    )
