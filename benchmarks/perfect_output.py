"""What a perfect output scores, in six languages: python -m benchmarks.perfect_output

Eight English sentences and their translations (perfect_output.tsv) are learned by heart by small
models, by the commands that users type: one copies each language, one translates into it. When
both write what the references say, letter for letter, eval.py must give 100 BLEU, 100 chrF and
0 TER. Ends with exit code 1 where one does not.
"""

import json
import tempfile
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from benchmarks.measure import run_script, table
from transformer.commands.command_line import parse_script
from transformer.commands.program import run_command
from transformer.errors import UserError

SENTENCES = Path(__file__).with_suffix(".tsv")
LANGUAGES = ("zho_Hans", "jpn_Jpan", "pes_Arab", "tha_Thai", "hin_Deva", "fra_Latn")
"""Of the columns after the English one."""
PERFECT = [100.0, 100.0, 100.0, 0.0]

SETTINGS = [
    "--data.dataset=", "--data.tsv-header", "--data.tokenizer", "char", "--data.vocab-size", "600",
    "--data.batch-tokens", "4096", "--data.num-buckets", "1",
    "--model.d-model", "64", "--model.d-ff", "256", "--model.dropout", "0",
    "--optimizer.name", "adam", "--optimizer.warmup-steps", "100", "--optimizer.scale", "1.5",
    "--optimizer.cooldown-steps", "200", "--train.steps", "600", "--train.label-smoothing", "0",
    "--train.validate-every", "600", "--train.log-every", "200",
]  # fmt: skip


@dataclass(frozen=True)
class Command:
    """Learn eight sentences by heart in each language, and score the outputs."""

    languages: tuple[str, ...] = LANGUAGES
    """Which of them."""


def main(words: list[str]) -> None:
    command = parse_script(Command, words, "python -m benchmarks.perfect_output")
    if others := set(command.languages) - set(LANGUAGES):
        wrong, known = ", ".join(sorted(others)), ", ".join(LANGUAGES)
        raise UserError(f"--languages: no sentences in {wrong}; there are {known}")
    rows = []
    for language in command.languages:
        column = 2 + LANGUAGES.index(language)
        for task, source, first in (("copy", language, column), ("translate", "eng_Latn", 1)):
            with tempfile.TemporaryDirectory() as folder:
                run = Path(folder) / "run"
                record, written = learned(run, source, language, (first, column))
            rows.append(row_of(language, task, record, written == texts(column)))
            print(f"{language}, {task}: {rows[-1]['perfect']}", flush=True)
    print("", table(rows), sep="\n")
    if any(row["perfect"] != "yes" for row in rows):
        raise SystemExit(1)


def texts(column: int) -> list[str]:
    rows = SENTENCES.read_text(encoding="utf-8").splitlines()[1:]
    return [row.split("\t")[column - 1] for row in rows]


def learned(run: Path, source: str, target: str, columns: tuple[int, int]) -> tuple[dict, list]:
    """The scores that eval.py keeps of a model which learned the columns, and its translations."""
    files = [f"--data.{split}-files={SENTENCES}" for split in ("train", "validation", "test")]
    tokenizer = "auto" if target != "jpn_Jpan" or find_spec("MeCab") else "char"
    data = [*files, "--data.tsv-columns", *map(str, columns)]
    data += ["--data.source", source, "--data.target", target, "--data.bleu-tokenizer", tokenizer]
    run_script("train.py", "configs/quickstart.py", "--run", str(run), *data, *SETTINGS)
    run_script("eval.py", str(run))
    (kept,) = (run / "eval").glob("*.json")
    translations = kept.with_suffix(f".{target}").read_text(encoding="utf-8")
    return json.loads(kept.read_text(encoding="utf-8")), translations.splitlines()


def row_of(language: str, task: str, record: dict, same: bool) -> dict:
    values = [round(metric["value"], 6) for metric in record["scores"]]
    signature = record["scores"][0]["signature"]
    return {
        "language": language,
        "task": task,
        **dict(zip(("BLEU", "chrF", "chrF++", "TER"), map(str, values))),
        "words of BLEU": signature.split("tok:")[1].split("|")[0],
        "perfect": "yes" if same and values == PERFECT else "NO",
    }


if __name__ == "__main__":
    run_command(main)
