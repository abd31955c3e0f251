"""Continue texts, line by line: `echo "Der Hund" | python generate.py runs/lm_quickstart`.

Every line of input gives `--samples` lines of output. An encoder alone fills in the blanks of a
line (`__`), or says its class. With a terminal as standard input it asks for one beginning after
the other, and shows a continuation as it is made.
"""

import signal

if __name__ == "__main__" and signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C ends the imports without a word

from transformer.commands.command_line import parse_generate
from transformer.commands.program import run_command
from transformer.commands.standard_input import read_lines, typed_lines
from transformer.config import Config, GenerateConfig


def main(words: list[str]) -> None:
    command, config = parse_generate(words)

    # Slow imports come after the command line has been understood.
    import sys
    from functools import partial
    from itertools import count, islice

    from transformer.data.vocabularies import load_tokenizers
    from transformer.decoding.generator import make_generator, stream
    from transformer.machine import devices
    from transformer.runs.checkpoints import load_params

    devices.demand("any")
    settings = command.generate
    tokenizers = load_tokenizers(command.run / "tokenizer", config.data)
    params, label = load_params(command.run, config, command.checkpoint)
    [side] = config.data.sides
    language = getattr(config.data, side)
    print(f"{command.run}, {language}, checkpoint {label}", file=sys.stderr)
    if config.model.encoder_layers:
        answers = partial(guesses, config, settings, params, tokenizers)
    else:
        generator = make_generator(config, settings, params, tokenizers)
        answers = partial(texts, generator)

    sys.stdout.reconfigure(encoding="utf-8", newline="\n")
    if sys.stdin.isatty():
        one_text = settings.samples == 1 and not (settings.beam_size or settings.log_probs)
        for number, line in enumerate(typed_lines(language)):
            if one_text and config.model.decoder_layers:
                for part in stream(generator, line, number):
                    print(part, end="", flush=True)
                print()
            else:
                print(*answers([line], number), sep="\n")
        return

    lines, size = read_lines(sys.stdin.buffer), 16 * config.decode.batch_sentences
    for first in count(step=size):
        if not (block := list(islice(lines, size))):
            break
        print(*answers(block, first), sep="\n")


def texts(generator, lines: list[str], first: int) -> list[str]:
    """The lines with what a decoder adds to them, as many of each as are asked for."""
    from transformer.decoding.generator import continuations

    shown, settings = [], generator.settings
    for found in continuations(generator, lines, first):
        for one in found[: settings.samples]:
            log_prob = f"{one.log_prob:.3f}\t" if settings.log_probs else ""
            shown.append(log_prob + " ".join(one.text.splitlines()))
        shown += [""] * (settings.samples - len(found))  # a search may find fewer
    return shown


def guesses(
    config: Config, settings: GenerateConfig, params, tokenizers, lines: list[str], first: int
) -> list[str]:
    """What an encoder makes of the lines: for each blank the likeliest words, or classes."""
    import warnings

    from transformer.decoding.blanks import classify, fill_in

    def shown(found) -> str:
        return ", ".join(f"{guess.word} {guess.probability:.3f}" for guess in found)

    if config.model.classes:
        return list(map(shown, classify(config, params, tokenizers, lines, settings.words)))
    found = fill_in(config, params, tokenizers, lines, settings.words)
    for number, (line, blanks) in enumerate(zip(lines, found), start=first + 1):
        if line and not blanks:
            warnings.warn(f"line {number:,} has no blank (two underscores: __)", stacklevel=1)
    return ["\t".join(map(shown, blanks)) for blanks in found]


if __name__ == "__main__":
    run_command(main)
