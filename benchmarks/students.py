"""A student beside its teacher: python -m benchmarks.students runs/teacher runs/student

Needs pip install -e '.[bench]', the test set of the teacher's run, and a shortlist.npz in the
student's (python -m transformer.commands.shortlist runs/student).

Both translate the test set, the teacher with its own beam, the student with a beam of 1 and with
the teacher's; the student also with shortlists and among the frequent tokens alone, and both in
CTranslate2 with int8 weights. Text goes in and text comes out, without a length penalty, each
contestant in a process of its own.
"""

import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

import jax
import numpy as np
import tyro

from benchmarks.measure import Outcome, contest, machine, require, table, versions
from benchmarks.test_set import (
    Work,
    build_ours,
    build_theirs,
    longest_output,
    read_test_set,
    same_search,
)
from transformer.commands.command_line import parse_script
from transformer.commands.program import run_command
from transformer.config import Config
from transformer.config.settings import Positive
from transformer.data.vocabularies import load_tokenizers
from transformer.decoding.shortlist import read_lexicon
from transformer.evaluation.scores import bleu
from transformer.interchange.ctranslate2 import save_translator, save_vocabulary_map
from transformer.runs.folder import load_run_config
from transformer.runs.load import load_run


@dataclass(frozen=True)
class Students:
    """Sentences/s, BLEU and size of a student, with shortlists and without, and of its teacher."""

    teacher: tyro.conf.Positional[Path]
    """The run folder of the teacher."""
    student: tyro.conf.Positional[Path]
    """The run folder of the student."""
    shortlist: Positive = 8
    """decode.shortlist; in vmap.txt, the --shortlist of convert.py has twice as many."""
    frequent: Positive = 4000
    """decode.frequent, and --frequent of convert.py."""
    sentences: Positive = 1000
    """Sentences to translate, the first of the test set."""
    rounds: Positive = 5
    """Times that each contestant translates them, timed."""


def main(words: list[str]) -> None:
    command = parse_script(Students, words, "python -m benchmarks.students")
    require("ctranslate2")
    teacher, student = map(load_run_config, (command.teacher, command.student))
    beam = teacher.decode.beam_size
    sources, references = read_test_set(teacher, command.sentences)
    print(f"{machine()}\n{versions('jax', 'ctranslate2')}")
    print(f"teacher {command.teacher}, student {command.student}; {len(sources):,} sentences\n")

    def work(run: Path, config: Config, beam: int, **changes: int) -> Work:
        config = same_search(config, beam)
        decode = replace(config.decode, **changes)
        return Work(run, "best", replace(config, decode=decode), sources)

    of_teacher = work(command.teacher, teacher, beam)
    of_student = {beam: work(command.student, student, beam) for beam in (beam, 1)}
    builders: dict[str, tuple] = {f"teacher, beam {beam}": (build_ours, of_teacher, "float32")}
    for size, own in of_student.items():
        builders[f"student, beam {size}"] = (build_ours, own, "float32")
        for variant in ("shortlist", "frequent"):
            among = work(command.student, student, size, **{variant: getattr(command, variant)})
            builders[f"student, beam {size}, {variant}"] = (build_ours, among, "float32")
    with tempfile.TemporaryDirectory() as temporary:
        folders = {name: Path(temporary) / name for name in ("teacher", "student", "common")}
        sizes = {
            "teacher": export(of_teacher, folders["teacher"]),
            "student": export(of_student[1], folders["student"], 2 * command.shortlist),
        }
        export(of_student[1], folders["common"], 0, command.frequent)
        tokenizers = load_tokenizers(command.teacher / "tokenizer", teacher.data)
        limit = longest_output(of_teacher.config, sources, tokenizers)
        int8 = "int8", limit
        builders[f"teacher, beam {beam}, CTranslate2 int8"] = (
            build_theirs, of_teacher, folders["teacher"], *int8,
        )  # fmt: skip
        for size, own in of_student.items():
            name = f"student, beam {size}, CTranslate2 int8"
            builders[name] = build_theirs, own, folders["student"], *int8
            builders[f"{name}, shortlist"] = build_theirs, own, folders["student"], *int8, True
            builders[f"{name}, frequent"] = build_theirs, own, folders["common"], *int8, True
        outcomes = contest(builders, command.rounds, warmup=1)
    language = teacher.data.target
    print(f"\n{table(result_rows(outcomes, references, language))}")
    print(", ".join(f"{name} {size}" for name, size in sizes.items()))


def export(work: Work, folder: Path, likely: int = 0, common: int = 0) -> str:
    """Writes a CTranslate2 model with int8 weights, and vmap.txt where it has a size; returns the
    sizes of both models, without tables."""
    run = load_run(work.run, work.checkpoint, work.config)
    save_translator(run, folder, "int8")
    if likely or common:
        lexicon = read_lexicon(work.run, work.config, "--shortlist")
        save_vocabulary_map(run, lexicon, likely, common, folder)
    size = (folder / "model.bin").stat().st_size
    ours = sum(leaf.nbytes for leaf in jax.tree.leaves(run.params))
    return f"{ours / 1e6:.1f} MB in float32, {size / 1e6:.1f} MB in int8"


def result_rows(
    outcomes: dict[str, Outcome], references: list[str], language: str
) -> list[dict[str, str]]:
    """A row for each contestant; the teacher is the first."""
    rows, first = [], next(iter(outcomes.values()))
    for name, (timing, _, (texts, ids, _), _) in outcomes.items():
        whole = outcomes[name.removesuffix(", shortlist").removesuffix(", frequent")]
        same = np.mean([a == b for a, b in zip(ids, whole.result.ids)])
        rows.append(
            {
                "contestant": name,
                "median s": f"{timing.median:.2f}",
                "sentences/s": f"{len(ids) / timing.median:.1f}",
                "of the teacher's": f"{first.timing.median / timing.median:.2f}",
                "of those without": f"{whole.timing.median / timing.median:.2f}",
                "same without": f"{same:.1%}",
                "BLEU": f"{bleu(texts, references, language):.2f}",
            }
        )
    return rows


if __name__ == "__main__":
    run_command(main)
