"""What a run is scored on: its own splits, files, and the test sets of sacreBLEU."""

import contextlib
import difflib
import io
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

from transformer.config import DataConfig
from transformer.config.settings import Perturbation
from transformer.data.corpus import read_pairs
from transformer.data.files import (
    Split,
    check_order,
    corpora,
    language_of,
    read_lines,
    with_files,
    without_compression,
)
from transformer.data.languages import same_language
from transformer.data.perturbation import kept_symbols, perturbed
from transformer.errors import UserError


@dataclass(frozen=True)
class TestSet:
    """Sentences as raw text. Raises UserError if all are blank."""

    name: str
    stem: str
    """Its name in file names."""
    pairs: list[tuple[str, str]]
    more_references: tuple[list[str], ...] = ()
    """Further references of the same sentences."""
    language: str = ""
    """Its target language, if the model has several."""

    __test__ = False  # or pytest takes it for a test

    def __post_init__(self) -> None:
        if not any(text.strip() for pair in self.pairs for text in pair):
            lines = f"all {len(self.pairs):,} lines are blank"
            raise UserError(f"{self.name}: there is nothing to score, {lines}")

    def settings(self, data: DataConfig) -> DataConfig:
        """The settings of a run, with the target language of this test set."""
        return replace(data, target=self.language or data.target)


def split_of(data: DataConfig, split: Split) -> list[TestSet]:
    """A split of the config, or its parts in each of data.targets."""
    name = f"{data.dataset or 'files'} {split}"
    found = corpora(data, split)
    if not (data.targets and found):  # without files, reading them is an error
        return [TestSet(name, split, list(read_pairs(data, split)))]
    by_language: dict[str, list[str]] = {}
    for corpus in found:
        by_language.setdefault(language_of(data, corpus), []).extend(map(str, corpus))
    parts = {
        language: replace(data, **{f"{split}_files": tuple(names)})
        for language, names in by_language.items()
    }
    return [
        TestSet(f"{name}, {one}", f"{split}-{one}", list(read_pairs(part, split)), language=one)
        for one, part in parts.items()
    ]


def in_files(data: DataConfig, files: Sequence[str]) -> list[TestSet]:
    """A test set for each source file and the reference file after it, or table, whose columns are
    those of the config.

    Raises UserError for a missing or unreadable file, files of different lengths, and files whose
    names say that they are in the other order.
    """
    found = corpora(with_files(data, "test", files), "test", "--test-files")
    for corpus in found:
        check_order(with_files(data, "test", corpus), corpus, "--test-files")
    return [
        _of_files(data, corpus, " and ".join(map(str, corpus)), _stem(corpus[0]))
        for corpus in found
    ]


def with_references(test_set: TestSet, names: Sequence[str]) -> TestSet:
    """The test set with the references of these files instead of its own.

    Raises UserError for a file that cannot be read, or has another number of lines.
    """
    columns = [read_lines("--references", name) for name in names]
    for name, column in zip(names, columns):
        if len(column) != len(test_set.pairs):
            raise UserError(
                f"--references: {name} has {len(column):,} lines, and {test_set.name} has "
                f"{len(test_set.pairs):,} sentences: line k of one must translate line k of the "
                "other"
            )
    pairs = [(source, reference) for (source, _), reference in zip(test_set.pairs, columns[0])]
    name = f"{test_set.name} with {' '.join(names)}"
    return replace(test_set, name=name, pairs=pairs, more_references=tuple(columns[1:]))


def perturbed_set(
    data: DataConfig, symbols: Sequence[str], test_set: TestSet, kind: Perturbation
) -> TestSet:
    """The test set with each sentence and its references changed in a way of data augmentation;
    these symbols stay as they are.

    Raises UserError for a way that needs translations if there are none.
    """
    sources, references = zip(*test_set.pairs)
    columns = [sources, references, *test_set.more_references]
    if data.label_column:
        if kind in ("merged", "cut"):
            raise UserError(f"--perturb {kind} needs pairs of sentences: remove it")
        columns = [sources]
    kept, random, texts = kept_symbols(symbols), Random(0), list(zip(*columns))
    neighbours = zip(texts, texts[1:] + texts[:1])
    changed = [perturbed(kind, *two, random, kept) for two in neighbours]
    count = sum(new != old for new, old in zip(changed, texts))
    sources, *translations = map(list, zip(*changed))
    first, *more = translations or [references]
    return replace(
        test_set,
        name=f"{test_set.name}, {kind} ({count:,} of {len(texts):,} changed)",
        stem=f"{test_set.stem}-{kind}",
        pairs=list(zip(sources, first)),
        more_references=tuple(more),
    )


def of_sacrebleu(data: DataConfig, name: str) -> TestSet:
    """A test set of sacreBLEU's, such as wmt14/full, between the languages of the config.

    sacreBLEU downloads its files once, to the folder of its variable SACREBLEU. Raises UserError
    for a name or a pair of languages that it does not know, and if it cannot download.
    """
    from sacrebleu.dataset import DATASETS

    if name not in DATASETS:
        near = ", ".join(difflib.get_close_matches(name, DATASETS))
        raise UserError(
            f"--sacrebleu {name}: sacreBLEU has no such test set; "
            + (f"similar names: {near}" if near else "sacrebleu --list prints them")
        )
    known: Any = DATASETS[name]
    wanted = data.source, data.target
    alike = (pair for pair in known.langpairs if all(map(same_language, pair.split("-"), wanted)))
    if (languages := next(alike, None)) is None:
        raise UserError(
            f"--sacrebleu {name} has no {'-'.join(wanted)}: it has "
            + ", ".join(sorted(known.langpairs))
        )
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            source = Path(known.get_source_file(languages))
            references = [Path(file) for file in known.get_reference_files(languages)]
    except (Exception, SystemExit) as error:  # it raises Exception, and exits
        raise UserError(
            f"--sacrebleu {name}: cannot get its files ({str(error) or type(error).__name__}); "
            f"with a network, sacrebleu -t {name} -l {languages} --echo src downloads them"
        ) from error
    found = _of_files(data, [source, references[0]], name, name.replace("/", "_"))
    return with_references(found, [*map(str, references)]) if references[1:] else found


def _of_files(data: DataConfig, corpus: Sequence[Path], name: str, stem: str) -> TestSet:
    alone = with_files(data, "test", corpus)
    language = language_of(alone, tuple(corpus)) if data.targets else ""
    return TestSet(name, stem, list(read_pairs(alone, "test")), language=language)


def _stem(path: Path) -> str:
    """The name of a file without its suffix, and without that of its compression."""
    return without_compression(path).stem
