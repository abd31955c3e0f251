"""Translate line by line: `python translate.py runs/quickstart < source.txt > translation.txt`.

Every line of input gives one line of output, a blank one a blank one. Lines are translated in
blocks of 16 batches, so that sentences of like lengths go together. With a terminal as standard
input it asks for one sentence after the other.
"""

import signal

if __name__ == "__main__" and signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C ends the imports without a word

from transformer.commands.command_line import parse_translate
from transformer.commands.program import run_command
from transformer.commands.standard_input import read_lines, typed_lines


def main(words: list[str]) -> None:
    command, config = parse_translate(words)

    # Slow imports come after the command line has been understood.
    import sys
    from functools import partial
    from itertools import islice

    from transformer.data.vocabularies import load_tokenizers
    from transformer.decoding.translator import make_translator, translate
    from transformer.machine import devices
    from transformer.runs.checkpoints import load_params

    devices.demand("any")
    tokenizers = load_tokenizers(command.run / "tokenizer", config.data)
    params, label = load_params(command.run, config, command.checkpoint)
    translator = partial(translate, make_translator(config, params, tokenizers))
    print(
        f"{command.run}, {config.data.source} to {config.data.target}, checkpoint {label}",
        file=sys.stderr,
    )
    sys.stdout.reconfigure(encoding="utf-8", newline="\n")
    if sys.stdin.isatty():
        for sentence in typed_lines(config.data.source):
            print(*translator([sentence]))
        return

    lines = read_lines(sys.stdin.buffer)
    while block := list(islice(lines, 16 * config.decode.batch_sentences)):
        for translation in translator(block):
            print(translation)


if __name__ == "__main__":
    run_command(main)
