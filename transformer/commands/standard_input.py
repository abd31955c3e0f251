"""Text from standard input: lines of a file or a pipe, or what somebody types."""

from collections.abc import Iterator

from transformer.errors import UserError


def read_lines(stream) -> Iterator[str]:
    """Lines of UTF-8 text; only a line feed ends a line. Raises UserError naming a bad line."""
    for number, line in enumerate(stream, start=1):
        try:
            yield line.decode("utf-8").rstrip("\r\n")
        except UnicodeDecodeError as error:
            raise UserError(
                f"line {number:,} of standard input is not UTF-8 ({error.reason}): "
                "convert it, for example with iconv"
            ) from error


def typed_lines(prompt: str) -> Iterator[str]:
    """Asks for lines until the end of input (Ctrl-D) or Ctrl-C."""
    while True:
        try:
            line = input(f"{prompt}> ")
        except (EOFError, KeyboardInterrupt):
            print()
            return
        yield line
