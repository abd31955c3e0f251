"""Continue texts, line by line: `echo "Der Hund" | python generate.py runs/lm_quickstart`.

Every line of input gives `--samples` lines of output, or with `--output json` one object. An
encoder alone predicts the words of the blanks (`__`) of a line, or its class. With a terminal as
standard input it asks for one prompt after the other, and shows the continuation as it grows.
"""

import signal
from collections.abc import Callable
from dataclasses import dataclass

if __name__ == "__main__" and signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C ends the imports quietly

from transformer.commands.command_line import GenerateCommand, parse_generate
from transformer.commands.program import run_command
from transformer.commands.standard_input import Exchange, answer_lines, printed_errors, typed_lines
from transformer.config import Config, GenerateConfig
from transformer.decoding.requests import Request, as_error, as_object, read_prompt


def main(words: list[str]) -> None:
    command, config = parse_generate(words)

    # Slow imports come after the command line has been understood.
    import sys
    from functools import partial

    from transformer.decoding.generator import continuations, make_generator, stream
    from transformer.machine import devices
    from transformer.runs.load import load_run

    devices.configure_devices("any")
    settings = command.generate
    run = load_run(command.run, command.checkpoint, config)
    params, tokenizers = run.params, run.tokenizers
    [side] = config.data.sides
    language = getattr(config.data, side)
    print(f"{command.run}, {language}, checkpoint {run.label}", file=sys.stderr)
    if config.model.encoder_layers:
        kind = "classes" if config.model.classes else "blanks"
        find = partial(predictions, config, settings, params, tokenizers)
    else:
        kind, generator = "continuations", make_generator(config, settings, params, tokenizers)
        find = partial(continuations, generator)

    exchange = Generation(command, kind, find)
    sys.stdout.reconfigure(encoding="utf-8", newline="\n")
    if sys.stdin.isatty() and command.input == command.output == "text":
        one_text = settings.samples == 1 and not (settings.beam_size or settings.log_probs)
        for number, line in enumerate(typed_lines(language)):
            if one_text and config.model.decoder_layers:
                for part in stream(generator, line, number):
                    print(part, end="", flush=True)
                print()
            else:
                with printed_errors():
                    print(*exchange.answer([exchange.read(line)], [number]))
        return
    size = 16 * config.decode.batch_sentences
    answer_lines(sys.stdin.buffer, size, exchange, skip=command.on_error == "skip")


@dataclass(frozen=True)
class Generation(Exchange):
    """Lines that are continued, filled in or classified. `find` gives the continuations, blanks or
    classes (`kind`) of texts, from the texts and their numbers."""

    command: GenerateCommand
    kind: str
    find: Callable[[list[str], list[int]], list]

    def read(self, line: str) -> Request | None:
        return read_prompt(line, self.command.input, self.kind)

    def answer(self, requests: list[Request], numbers: list[int]) -> list[str]:
        found = self.find([request.text for request in requests], numbers)
        return [self.printed(*of_one) for of_one in zip(requests, found)]

    def printed(self, request: Request, found: list) -> str:
        settings = self.command.generate
        if self.command.output == "json":
            return as_object(request, {self.kind: as_fields(self.kind, settings, found)})
        return "\n".join(as_text(self.kind, settings, found))

    def failed(self, number: int, line: str, sentence: str) -> str:
        if self.command.output == "json":
            return as_error(line, self.command.input, sentence, {self.kind, "error"})
        return "\n".join(as_text(self.kind, self.command.generate, []))


def predictions(
    config: Config,
    settings: GenerateConfig,
    params,
    tokenizers,
    lines: list[str],
    numbers: list[int],
) -> list:
    """What an encoder predicts for the lines: for each mask the likeliest words, or classes."""
    import warnings

    from transformer.decoding.fill_mask import MASK, classify, fill_mask

    if config.model.classes:
        return classify(config, params, tokenizers, lines, settings.words)
    found = fill_mask(config, params, tokenizers, lines, settings.words)
    for number, line in zip(numbers, lines):
        if line and not MASK.search(line):
            warnings.warn(f"line {number + 1:,} has no mask (two underscores: __)", stacklevel=1)
    return found


def as_text(kind: str, settings: GenerateConfig, found: list) -> list[str]:
    """The lines of output for one line: `samples` continuations, or one line of predictions."""
    from transformer.decoding.lines import one_line

    if kind != "continuations":
        rows = [found] if kind == "classes" else found
        words = (", ".join(f"{one.word} {one.probability:.3f}" for one in row) for row in rows)
        return ["\t".join(words)]
    lines = []
    for one in found[: settings.samples]:
        log_prob = f"{one.log_prob:.3f}\t" if settings.log_probs else ""
        lines.append(log_prob + one_line(one.text))
    return lines + [""] * (settings.samples - len(lines))  # a search may find fewer


def as_fields(kind: str, settings: GenerateConfig, found: list) -> list:
    """The same for JSON."""

    def words(row) -> list[dict]:
        return [{"word": one.word, "probability": round(one.probability, 6)} for one in row]

    if kind != "continuations":
        return words(found) if kind == "classes" else [*map(words, found)]
    return [
        {"text": one.text, "log_prob": round(one.log_prob, 6)}
        | ({"truncated": True} if one.truncated else {})
        for one in found[: settings.samples]
    ]


if __name__ == "__main__":
    run_command(main)
