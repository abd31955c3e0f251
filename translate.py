"""Translate line by line: `python translate.py runs/quickstart < source.txt > translation.txt`.

Every line of input gives one line of output, except with `--nbest`; `--alignments`, `--score`,
`--input` and `--output` change what is read and written, for example whole documents. Lines of a
file are translated in blocks of 16 batches, so that sentences of similar lengths share a batch;
lines from a pipe are translated when they arrive. With a terminal as standard input it asks for one
sentence after the other.
"""

import signal
import warnings
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Any

if __name__ == "__main__" and signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C ends the imports quietly

from transformer.commands.command_line import TranslateCommand, parse_translate
from transformer.commands.program import run_command
from transformer.commands.standard_input import Exchange, answer_lines, printed_errors, typed_lines
from transformer.decoding.requests import (
    NO_ANSWER,
    Answer,
    Request,
    as_error,
    as_json,
    as_scores,
    as_text,
    read_request,
)
from transformer.documents import FORMATS


def main(words: list[str]) -> None:
    command, config = parse_translate(words)

    # Slow imports come after the command line has been understood.
    import sys

    from transformer.commands.ensemble import load_others
    from transformer.commands.glossary import load_glossary
    from transformer.data.tags import target_tag
    from transformer.decoding.confidence import load_temperature
    from transformer.decoding.shortlist import load_lexicon
    from transformer.decoding.translator import make_joint_translator
    from transformer.machine import devices
    from transformer.runs.load import load_run

    devices.configure_devices("any")
    run = load_run(command.run, command.checkpoint, config)
    others, label = load_others(command.run, run, command.ensemble)
    members, tokenizers = [(config.model, run.params), *others], run.tokenizers
    target_tag(tokenizers.source, command.target)
    glossary = load_glossary(command.glossary, tokenizers.target, config.decode)
    translator = make_joint_translator(members, config.decode, tokenizers)
    temperature = load_temperature(command.run, label)
    lexicon = None if command.score else load_lexicon(command.run, config)
    translator = replace(translator, glossary=glossary, temperature=temperature, lexicon=lexicon)
    print(
        f"{command.run}, {config.data.source} to {config.data.target}, checkpoint {label}",
        file=sys.stderr,
    )
    exchange = Translation(command, translator)
    sys.stdout.reconfigure(encoding="utf-8", newline="\n")
    if command.input in FORMATS:
        from transformer.commands.document import print_document

        print_document(command, config, translator)
    elif sys.stdin.isatty() and command.input == "text":
        for number, sentence in enumerate(typed_lines(config.data.source)):
            with printed_errors():
                print(*exchange.answer([exchange.read(sentence)], [number]))
    else:
        size = 16 * config.decode.batch_sentences
        answer_lines(sys.stdin.buffer, size, exchange, skip=command.on_error == "skip")
    exchange.warn_of_truncated()


@dataclass(frozen=True)
class Translation(Exchange):
    """Lines that are translated or scored, and the numbers of answered ones and truncated ones."""

    command: TranslateCommand
    translator: Any
    counts: Counter[str] = field(default_factory=Counter)

    def read(self, line: str) -> Request | None:
        request = read_request(line, self.command.input, self.command.score)
        if request is None or request.target:
            return request
        return replace(request, target=self.command.target)

    def answer(self, requests: list[Request], numbers: list[int]) -> list[str]:
        from transformer.decoding.answers import scored, translated

        command = self.command
        if command.score:
            found = scored(self.translator, requests, command.alignments)
        else:
            options = command.nbest, command.alignments, command.confidence
            found = translated(self.translator, requests, *options)
        self.counts["answered"] += len(found)
        self.counts["truncated"] += sum(best.truncated is True for best, *_ in found)
        return [self.printed(*of_one) for of_one in zip(numbers, requests, found)]

    def warn_of_truncated(self) -> None:
        """One warning for all truncated translations."""
        from transformer.decoding.translator import truncation

        if truncated := self.counts["truncated"]:
            warning = truncation(self.translator, truncated, self.counts["answered"])
            warnings.warn(warning, stacklevel=2)

    def printed(self, number: int, request: Request, answers: list[Answer]) -> str:
        listing = self.command.nbest > 1
        if self.command.output == "json":
            return as_json(request, answers, listing)
        if self.command.score:
            return as_scores(answers[0])
        return "\n".join(as_text(number, answers, listing))

    def failed(self, number: int, line: str, sentence: str) -> str:
        if self.command.output == "json":
            return as_error(line, self.command.input, sentence)
        if self.command.score:
            return ""
        missing = replace(NO_ANSWER, alignment="") if self.command.alignments else NO_ANSWER
        return "\n".join(as_text(number, [missing], self.command.nbest > 1))


if __name__ == "__main__":
    run_command(main)
