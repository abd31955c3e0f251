"""Continue texts, line by line: `echo "Der Hund" | python generate.py runs/lm_quickstart`.

Every line of input gives `--samples` lines of output, or with `--output json` one object. An
encoder alone fills in the blanks of a line (`__`), or says its class. With a terminal as standard
input it asks for one beginning after the other, and shows a continuation as it is made.
"""

import signal

if __name__ == "__main__" and signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C ends the imports without a word

from transformer.commands.command_line import parse_generate
from transformer.commands.program import run_command
from transformer.commands.standard_input import in_blocks, read_line, typed_lines
from transformer.config import Config, GenerateConfig


def main(words: list[str]) -> None:
    command, config = parse_generate(words)

    # Slow imports come after the command line has been understood.
    import sys
    from functools import partial

    from transformer.data.vocabularies import load_tokenizers
    from transformer.decoding.generator import continuations, make_generator, stream
    from transformer.decoding.requests import as_object, read_request
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
        kind = "classes" if config.model.classes else "blanks"
        answers = partial(guesses, config, settings, params, tokenizers)
    else:
        kind, generator = "continuations", make_generator(config, settings, params, tokenizers)

        def answers(lines: list[str], first: int) -> list:
            return continuations(generator, lines, range(first, first + len(lines)))

    sys.stdout.reconfigure(encoding="utf-8", newline="\n")
    if sys.stdin.isatty() and command.input == command.output == "text":
        one_text = settings.samples == 1 and not (settings.beam_size or settings.log_probs)
        for number, line in enumerate(typed_lines(language)):
            if one_text and config.model.decoder_layers:
                for part in stream(generator, line, number):
                    print(part, end="", flush=True)
                print()
            else:
                print(*as_text(kind, settings, *answers([line], number)), sep="\n")
        return

    for first, block in in_blocks(sys.stdin.buffer, 16 * config.decode.batch_sentences):
        requests = [
            read_request(number, read_line(number, line), command.input, scoring=False)
            for number, line in enumerate(block, first + 1)
        ]
        for request, found in zip(requests, answers([one.text for one in requests], first)):
            if command.output == "json":
                print(as_object(request, {kind: as_fields(kind, settings, found)}))
            else:
                print(*as_text(kind, settings, found), sep="\n")


def guesses(
    config: Config, settings: GenerateConfig, params, tokenizers, lines: list[str], first: int
) -> list:
    """What an encoder makes of the lines: for each blank the likeliest words, or classes."""
    import warnings

    from transformer.decoding.blanks import classify, fill_in

    if config.model.classes:
        return classify(config, params, tokenizers, lines, settings.words)
    found = fill_in(config, params, tokenizers, lines, settings.words)
    for number, (line, blanks) in enumerate(zip(lines, found), start=first + 1):
        if line and not blanks:
            warnings.warn(f"line {number:,} has no blank (two underscores: __)", stacklevel=1)
    return found


def as_text(kind: str, settings: GenerateConfig, found: list) -> list[str]:
    """The lines of output for one line: its continuations, as many as are asked for, or one line
    with the guesses."""

    def guessed(some) -> str:
        return ", ".join(f"{guess.word} {guess.probability:.3f}" for guess in some)

    if kind == "classes":
        return [guessed(found)]
    if kind == "blanks":
        return ["\t".join(map(guessed, found))]
    lines = []
    for one in found[: settings.samples]:
        log_prob = f"{one.log_prob:.3f}\t" if settings.log_probs else ""
        lines.append(log_prob + " ".join(one.text.splitlines()))
    return lines + [""] * (settings.samples - len(lines))  # a search may find fewer


def as_fields(kind: str, settings: GenerateConfig, found: list) -> list:
    """The same for JSON."""

    def guessed(some) -> list[dict]:
        return [{"word": one.word, "probability": round(one.probability, 6)} for one in some]

    if kind == "classes":
        return guessed(found)
    if kind == "blanks":
        return [guessed(blank) for blank in found]
    chosen = found[: settings.samples]
    return [{"text": one.text, "log_prob": round(one.log_prob, 6)} for one in chosen]


if __name__ == "__main__":
    run_command(main)
