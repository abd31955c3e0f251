"""Tables: rows of columns, separated by tabs (.tsv) or by commas (.csv), with or without quotes."""

import csv
import re
from collections.abc import Iterator, Sequence

from transformer.config import DataConfig
from transformer.data.languages import base_of
from transformer.errors import UserError

SEPARATORS = {".tsv": "\t", ".csv": ","}
"""The separator of columns, by the suffix of the file."""

LONGEST_FIELD = 2**24
"""Most characters of a quoted field; more mean that its quote is not closed."""

HEADER_WORDS = {
    "source", "src", "target", "tgt", "trg", "text", "sentence", "sentences", "segment", "segments",
    "line", "phrase", "translation", "translations", "translated", "original", "reference", "ref",
    "language", "lang", "code", "label", "labels", "class", "category", "sentiment", "id", "index",
}  # fmt: skip
"""The words of column names, besides languages."""


def read_rows(
    name: str, lines: Iterator[str], separator: str, quoted: bool
) -> Iterator[tuple[int, list[str]]]:
    """The columns of each row, and the number of the line in which it begins.

    Without quotes a row is a line. With them a field may be enclosed in quotes; inside, separators
    are text, "" is a quote, and the end of a line is a space; spaces before a field do not count.
    Raises UserError, naming the line, for a field whose quote is not closed, or that continues
    after it, and for a row with more or fewer columns than the first.
    """
    if not quoted:
        yield from enumerate((line.split(separator) for line in lines), start=1)
        return
    csv.field_size_limit(LONGEST_FIELD)
    texts = (f"{line}\n" for line in lines)
    reader = csv.reader(texts, delimiter=separator, strict=True, skipinitialspace=True)
    width = 0
    while True:
        number = reader.line_num + 1
        try:
            row = next(reader, None)
        except csv.Error as error:
            remedy = "correct the row" + ", or set data.tsv_quotes off" * (separator == "\t")
            if "new-line" in str(error):
                raise UserError(
                    f"{name}, line {number}: a carriage return is outside of quotation marks: "
                    f"{remedy}"
                ) from error
            raise UserError(
                f"{name}, line {number}: a quoted field must end with a quotation mark, and "
                f"quotation marks within it must be doubled ({error}): {remedy}"
            ) from error
        if row is None:
            return
        width = width or len(row)
        if row and len(row) != width:
            name_of = "comma" if separator == "," else "tab"
            raise UserError(
                f"{name}, line {number}: {len(row)} columns, but the first row has {width}: put "
                f"texts that contain a {name_of} in quotation marks"
            )
        yield number, [field.replace("\n", " ") for field in row]


def looks_like_header(data: DataConfig, cells: Sequence[str]) -> bool:
    """Whether the first row of a table seems to name its columns: each cell consists of codes or
    names of the run's languages and of words such as "source"."""
    languages = {base_of(getattr(data, side)) for side in data.sides}

    def is_name(cell: str) -> bool:
        words = re.findall(r"[^\W\d_]+", cell.lower())
        known = (word in HEADER_WORDS or base_of(word) in languages for word in words)
        return all(known) or base_of(cell.strip()) in languages

    return any(map(str.isalpha, "".join(cells))) and all(map(is_name, cells))
