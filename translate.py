"""Translate line by line: `python translate.py runs/quickstart < source.txt > translation.txt`.

Every line of input gives one line of output, a blank one a blank one; `--nbest`, `--alignments`,
`--score`, `--input` and `--output` ask for more. Lines of a file are translated in blocks of 16
batches, so that sentences of like lengths go together; from a pipe, those that have come are
translated at once. With a terminal as standard input it asks for one sentence after the other.
"""

import signal

if __name__ == "__main__" and signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C ends the imports without a word

from transformer.commands.command_line import TranslateCommand, member, parse_translate
from transformer.commands.program import run_command
from transformer.commands.standard_input import in_blocks, read_line, typed_lines
from transformer.config import Config


def main(words: list[str]) -> None:
    command, config = parse_translate(words)

    # Slow imports come after the command line has been understood.
    import sys

    from transformer.decoding.requests import Request, read_request
    from transformer.decoding.translator import make_joint_translator
    from transformer.machine import devices

    devices.demand("any")
    members, tokenizers, label = load_members(command, config)
    translator = make_joint_translator(members, config.decode, tokenizers)
    print(
        f"{command.run}, {config.data.source} to {config.data.target}, checkpoint {label}",
        file=sys.stderr,
    )
    sys.stdout.reconfigure(encoding="utf-8", newline="\n")
    if sys.stdin.isatty() and command.input == "text":
        for number, sentence in enumerate(typed_lines(config.data.source)):
            answer(command, translator, [Request(sentence)], number)
        return

    for first, block in in_blocks(sys.stdin.buffer, 16 * config.decode.batch_sentences):
        requests = [
            read_request(number, read_line(number, line), command.input, command.score)
            for number, line in enumerate(block, first + 1)
        ]
        answer(command, translator, requests, first)


def answer(command: TranslateCommand, translator, block: list, first: int) -> None:
    """Prints what becomes of requests, the first of which has the number `first`."""
    from transformer.decoding.answers import scored, translated
    from transformer.decoding.requests import as_json, as_scores, as_text

    if command.score:
        found = scored(translator, block, command.alignments, first + 1)
    else:
        found = translated(translator, block, command.nbest, command.alignments)
    listing = command.nbest > 1
    for number, (request, answers) in enumerate(zip(block, found), start=first):
        if command.output == "json":
            print(as_json(request, answers, listing))
        elif command.score:
            print(as_scores(answers[0]))
        else:
            print(*as_text(number, answers, listing), sep="\n")


def load_members(command: TranslateCommand, config: Config):
    """The models, their tokenizers, and which checkpoints they are. Raises UserError for a run of
    another vocabulary."""
    from transformer.data.vocabularies import load_tokenizers
    from transformer.errors import UserError
    from transformer.runs.checkpoints import load_params
    from transformer.runs.folder import load_run_config

    tokenizers = load_tokenizers(command.run / "tokenizer", config.data)
    params, label = load_params(command.run, config, command.checkpoint)
    members = [(config.model, params)]
    for run, checkpoint in map(member, command.ensemble):
        other = load_run_config(run)
        if [other.data.source, other.data.target] != [config.data.source, config.data.target]:
            raise UserError(f"--ensemble: {run} does not translate between these languages")
        if other.data.vocabulary != config.data.vocabulary:
            raise UserError(
                f"--ensemble: {run} has another vocabulary than {command.run}: runs that were "
                "begun with the same data and vocabulary settings share one"
            )
        params, label_there = load_params(run, other, checkpoint)
        members.append((other.model, params))
        label += f"; {run}, {label_there}"
    return members, tokenizers, label


if __name__ == "__main__":
    run_command(main)
