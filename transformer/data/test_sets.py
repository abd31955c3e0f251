"""What a run is scored on: its own splits, files, and the test sets that sacreBLEU knows."""

import contextlib
import difflib
import io
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from transformer.config import DataConfig
from transformer.data.corpus import read_pairs
from transformer.data.files import corpora
from transformer.data.languages import same_language
from transformer.errors import UserError


@dataclass(frozen=True)
class TestSet:
    """Sentences as people wrote them, never as tokens. Raises UserError where all are blank."""

    name: str
    stem: str
    """How the names of files call it."""
    pairs: list[tuple[str, str]]

    __test__ = False  # or pytest takes it for a test

    def __post_init__(self) -> None:
        if not any(text.strip() for pair in self.pairs for text in pair):
            lines = f"all {len(self.pairs):,} lines are blank"
            raise UserError(f"{self.name}: there is nothing to score, {lines}")


def split_of(data: DataConfig, split: str) -> TestSet:
    """What the config calls "test" or "validation"."""
    return TestSet(f"{data.dataset or 'files'} {split}", split, list(read_pairs(data, split)))


def in_files(data: DataConfig, files: Sequence[str]) -> list[TestSet]:
    """A test set for each source and reference file, or table, read as the config says.

    Raises UserError for a missing or unreadable file, and files of different lengths.
    """
    named = replace(data, dataset="", test_files=tuple(files))
    return [
        _of_files(data, corpus, " and ".join(map(str, corpus)), corpus[0].stem)
        for corpus in corpora(named, "test")
    ]


def of_sacrebleu(data: DataConfig, name: str) -> TestSet:
    """A test set of sacreBLEU's, such as wmt14/full, between the languages of the config.

    Its files are downloaded once, by sacreBLEU, to where its variable SACREBLEU says. Raises
    UserError for a name or a pair of languages that it does not know, and where it cannot download.
    """
    from sacrebleu.dataset import DATASETS

    if name not in DATASETS:
        near = ", ".join(difflib.get_close_matches(name, DATASETS))
        raise UserError(
            f"--sacrebleu {name}: sacreBLEU knows no such test set; "
            + (f"is it {near}?" if near else "sacrebleu --list shows them")
        )
    known, wanted = DATASETS[name], (data.source, data.target)
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
    except (Exception, SystemExit) as error:  # it raises Exception itself, and exits
        raise UserError(
            f"--sacrebleu {name}: its files cannot be had ({str(error) or type(error).__name__}); "
            f"where there is a network, sacrebleu -t {name} -l {languages} --echo src fetches them"
        ) from error
    if len(references) > 1:
        raise UserError(
            f"--sacrebleu {name} has {len(references)} references a sentence, and eval.py reads one"
        )
    return _of_files(data, [source, *references], name, name.replace("/", "_"))


def _of_files(data: DataConfig, corpus: Sequence[Path], name: str, stem: str) -> TestSet:
    files = tuple(map(str, corpus))
    alone = replace(data, dataset="", test_files=files, swap_files=False)
    return TestSet(name, stem, list(read_pairs(alone, "test")))
