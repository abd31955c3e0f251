"""Translate line by line: `python translate.py runs/quickstart < source.txt > translation.txt`.

Every line of input gives one line of output, a blank one a blank one. With a terminal as standard
input it asks for one sentence after the other.
"""

from transformer.command_line import TranslateCommand, parse_with_run, run_command
from transformer.config import UserError


def main(words: list[str]) -> None:
    command, config = parse_with_run(TranslateCommand, words, prog="translate.py")

    # Slow imports come after the command line has been understood.
    import sys
    from functools import partial
    from itertools import islice

    from transformer.data.tokenizer import load_tokenizers
    from transformer.decoding.translator import translate
    from transformer.run import load_params

    tokenizers = load_tokenizers(command.run / "tokenizer")
    params, label = load_params(command.run, config, command.checkpoint)
    translator = partial(translate, config, params, tokenizers)
    print(
        f"{command.run}, {config.data.source} to {config.data.target}, checkpoint {label}",
        file=sys.stderr,
    )
    if sys.stdin.isatty():
        converse(translator, config.data.source)
        return

    # Several batches at a time: enough to sort by length, little enough to stream.
    for stream in (sys.stdin, sys.stdout):
        stream.reconfigure(encoding="utf-8", newline="\n")
    done = 0
    try:
        while lines := list(islice(sys.stdin, 16 * config.decode.batch_sentences)):
            for translation in translator([line.rstrip("\r\n") for line in lines]):
                print(translation)
            sys.stdout.flush()
            done += len(lines)
    except UnicodeDecodeError as error:
        raise UserError(
            f"standard input is not UTF-8 ({error.reason}, after line {done:,}): "
            "convert it, for example with iconv"
        ) from error


def converse(translator, language: str) -> None:
    """Asks for sentences until the end of input (Ctrl-D) or Ctrl-C."""
    while True:
        try:
            sentence = input(f"{language}> ")
        except (EOFError, KeyboardInterrupt):
            print()
            return
        print(*translator([sentence]))


if __name__ == "__main__":
    run_command(main)
