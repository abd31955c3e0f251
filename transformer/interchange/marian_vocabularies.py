"""The vocabularies of a model of the Marian toolkit: SentencePiece models (.spm), or lists of
pieces (.yml, .json, .txt) for text that source.spm and target.spm cut."""

from collections.abc import Sequence
from pathlib import Path

import sentencepiece

from transformer.data.piece_tokenizer import Pieces, check_pieces
from transformer.data.tokenizer import load_tokenizer
from transformer.errors import UserError, one_line
from transformer.interchange.marian_options import read_yaml
from transformer.interchange.weights import checked

MOST_DIFFERENCE = 0.02
"""Of the number of pieces from that of rows, as a share: other vocabularies differ more."""

END, UNKNOWN = "</s>", "<unk>"


def read_vocabularies(
    files: Sequence[Path], rows: tuple[int, int], folder: Path
) -> tuple[tuple[bytes, bytes], tuple[Pieces, Pieces]]:
    """The SentencePiece models of both sides, and their pieces; `rows`: the sizes of the tables of
    embeddings. Raises UserError for files that are missing or damaged."""
    if len(files) not in (1, 2):
        given = f"{len(files)} vocabularies are given: " if files else ""
        raise UserError(
            f"{folder}: {given}name those of source and target with --vocabularies, such as "
            "vocab.yml, or vocab.en.spm vocab.de.spm"
        )
    models, pieces = [], []
    for side, file, count in zip(("source", "target"), (files[0], files[-1]), rows):
        is_model = file.suffix in (".spm", ".model")
        model = checked(file if is_model else folder / f"{side}.spm")
        models.append(load_tokenizer(model).model)
        ids = _ids_of_model(models[-1]) if is_model else _ids_of_list(checked(file))
        pieces.append(_pieces(ids, count, file))
    return (models[0], models[1]), (pieces[0], pieces[1])


def _pieces(ids: dict[str, int], rows: int, file: Path) -> Pieces:
    """The pieces of a table of embeddings with `rows`, and one more, for the zeros that a
    translation begins with. Pieces beyond the table are unknown to Marian too."""
    if abs(len(ids) - rows) > rows * MOST_DIFFERENCE:
        raise UserError(f"{file} has {len(ids):,} pieces, but the model has {rows:,} rows for them")
    names: list[str | None] = [None] * rows
    for name, number in ids.items():
        if number < 0 or (number < rows and names[number] is not None):
            raise UserError(f"cannot read {file}: the piece {name!r} has no id of its own")
        if number < rows:
            names[number] = name
    if END not in names or UNKNOWN not in names:
        raise UserError(f"{file} lacks the piece {END if END not in names else UNKNOWN}")
    begin = "<pad>" if "<pad>" not in names else "<start>"
    pieces = Pieces((*names, begin), rows, rows, names.index(END), names.index(UNKNOWN))
    try:
        check_pieces(pieces)
    except ValueError as error:
        raise UserError(f"cannot read {file}: {one_line(error)}") from error
    return pieces


def _ids_of_model(model: bytes) -> dict[str, int]:
    """The ids that a SentencePiece model itself gives to its pieces."""
    cutter = sentencepiece.SentencePieceProcessor(model_proto=model)
    return {cutter.id_to_piece(number): number for number in range(cutter.vocab_size())}


def _ids_of_list(file: Path) -> dict[str, int]:
    """The ids in a list: one piece a line, or YAML with the id of each piece."""
    if file.suffix == ".txt":
        try:
            lines = file.read_text(encoding="utf-8").split("\n")
        except ValueError as error:
            raise UserError(f"cannot read {file}: {one_line(error)}") from error
        return {piece: number for number, piece in enumerate(lines) if piece}
    found = read_yaml(file.read_bytes(), file)
    try:
        return {piece: int(number) for piece, number in found.items()}
    except (TypeError, ValueError):
        raise UserError(f"cannot read {file}: it does not have an id for each piece") from None
