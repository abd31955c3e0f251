"""Make the lexicon of a translator, for `--decode.shortlist` and `--decode.frequent`:
`python -m transformer.commands.shortlist runs/quickstart`.
"""

import math
import signal

if __name__ == "__main__" and signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C ends the imports quietly

from dataclasses import dataclass
from typing import Any

from transformer.commands.command_line import Checkpoint, RunFolder, parse_with_run
from transformer.commands.program import run_command

PROGRAM = "python -m transformer.commands.shortlist"
SIZES = (4, 8, 16, 32)
"""Values of `decode.shortlist` that are tried."""

SHARES = (0.5, 0.75, 0.9, 1.0)
"""Values of `decode.frequent` that are tried, as shares of the tokens that occur."""

TRIED = 1_000
"""Sentences of the validation set that they are tried on."""


@dataclass(frozen=True)
class ShortlistCommand:
    """Count which target tokens translate each source token, by the attention of a translator to
    its training pairs, and write RUN/shortlist.npz."""

    run: RunFolder
    checkpoint: Checkpoint = "best"
    files: tuple[str, ...] = ()
    """Pairs to count instead of the training pairs: a source and a target file, or a table."""


def main(words: list[str]) -> None:
    """Makes the lexicon that the command line asks for."""
    command, config = parse_with_run(ShortlistCommand, words, PROGRAM)

    # Slow imports come after the command line has been understood.
    from transformer.data.corpus import CONVERTED, read_pairs
    from transformer.data.files import corpora, with_files
    from transformer.data.progress import with_progress
    from transformer.decoding.lexicon import make_lexicon
    from transformer.decoding.shortlist import FILE, save_lexicon
    from transformer.decoding.translator import make_translator
    from transformer.errors import UserError
    from transformer.machine import devices
    from transformer.machine.files import atomic_file
    from transformer.runs.load import load_run

    if len(config.data.sides) == 1:
        raise UserError(f"{command.run} is not a translator, and has no shortlists")
    if config.data.dataset.startswith(CONVERTED) and not command.files:
        raise UserError(f"{command.run} was converted and has no pairs of its own: name --files")
    devices.configure_devices("any")
    counted = config.data
    if command.files:
        counted = with_files(counted, "train", command.files)
        corpora(counted, "train", "--files")  # an error names the option
    pairs = with_progress(read_pairs(counted, "train"), "pairs aligned", print)
    run = load_run(command.run, command.checkpoint, config)
    translator = make_translator(config, run.params, run.tokenizers)
    lexicon = make_lexicon(translator, pairs)
    path = command.run / FILE
    with atomic_file(path) as temporary, temporary.open("wb") as file:
        save_lexicon(file, lexicon)
    print(f"{path}: translations of {lexicon.size:,} source tokens")
    try:
        print_coverage(translator, config, lexicon)
    except UserError as error:
        print(f"its sizes were not tried on a validation set: {error}")


def print_coverage(translator: Any, config: Any, lexicon: Any) -> None:
    """Prints how many translations of the validation set each size of shortlist allows."""
    from dataclasses import replace
    from itertools import islice

    from transformer.data.corpus import read_pairs
    from transformer.decoding.lexicon import coverage
    from transformer.decoding.translator import best_hypotheses

    sources = [source for source, _ in islice(read_pairs(config.data, "validation"), TRIED)]
    found = [one.tokens for one in best_hypotheses(translator, sources)]
    tokens = len(lexicon.frequent)
    tried = [("shortlist", size) for size in SIZES]
    tried += [("frequent", math.ceil(share * tokens)) for share in SHARES]
    print(f"{tokens:,} of {translator.tokenizers.target.vocab_size:,} target tokens occur")
    print(f"translations that are allowed, of {len(found):,} of the validation set:")
    plain = replace(config.decode, shortlist=0, frequent=0)
    for setting, size in tried:
        settings = replace(plain, **{setting: size})
        share = coverage(translator, lexicon, settings, sources, found)
        print(f"  --decode.{setting:9} {size:6}  {share:.1%}")


if __name__ == "__main__":
    run_command(main)
