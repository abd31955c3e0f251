"""Requests as lines of text, tables or JSON, and their answers."""

import json
from collections.abc import Sequence, Set
from dataclasses import dataclass, field
from math import inf, isfinite
from typing import Any, Literal

from transformer.decoding.lines import one_line
from transformer.errors import UserError

Form = Literal["text", "tsv", "json"]
FIELDS = ("text", "prefix", "target", "translation")
"""Fields of a JSON object that are read."""


@dataclass(frozen=True)
class Request:
    """A line of input: a text, the prefix of its translation, its target language, or a translation
    to score."""

    text: str
    prefix: str = ""
    target: str = ""
    translation: str = ""
    others: dict[str, Any] = field(default_factory=dict)
    """All fields of the JSON object, without those of an earlier answer."""


@dataclass(frozen=True)
class Answer:
    """A translation and what was requested with it; None where it was not."""

    translation: str
    score: float | None = None
    log_prob: float | None = None
    tokens: Sequence[str] | None = None
    log_probs: Sequence[float] | None = None
    alignment: str | None = None
    confidence: float | None = None
    words: Sequence[tuple[str, float]] | None = None
    """The words of the translation with the confidence of each."""
    truncated: bool | None = None
    """True if it reached its longest length without EOS; otherwise None."""

    def fields(self) -> dict[str, Any]:
        """The fields that are not None, as JSON has them."""
        known = {name: value for name, value in vars(self).items() if value is not None}
        for name, value in known.items():
            if isinstance(value, float):
                known[name] = round(value, 6) if isfinite(value) else None
        if self.words is not None:
            known["words"] = [[word, round(confidence, 4)] for word, confidence in self.words]
        if self.log_probs is not None:
            known["log_probs"] = [round(n, 6) for n in self.log_probs]
        return known


NO_ANSWER = Answer("", score=-inf)
"""Printed for a line that has no answer."""

ANSWERED = {*Answer.__dataclass_fields__, "nbest", "error"} - {*FIELDS}
"""Fields of an answer: those of an earlier one are dropped."""


def read_request(line: str, form: Form, scoring: bool) -> Request | None:
    """The request of a line of this form; None of a blank line between JSON objects. Raises
    UserError for a line that is not of this form."""
    if form == "text":
        return Request(line)
    if form == "tsv":
        return _of_table(line, scoring)
    return _of_object(read_object(line, "this"), scoring) if line.strip() else None


def read_prompt(line: str, form: Form, kind: str) -> Request | None:
    """The same for a text to continue, fill in or classify: all fields of a JSON object stay,
    except for an earlier answer of this kind."""
    if form != "json":
        return read_request(line, form, scoring=False)
    if not line.strip():
        return None
    values = read_object(line, "this")
    _check_strings(values, ("text",))
    return Request(values["text"], others=_without_answer(values, {kind, "error"}))


def _of_table(line: str, scoring: bool) -> Request:
    columns, name = line.split("\t"), "translation" if scoring else "prefix"
    if scoring and len(columns) < 2:
        raise UserError("--score needs the text, a tab, and the translation")
    if len(columns) > 2:
        raise UserError(f"{len(columns)} columns, but there may be only two: text and {name}")
    return Request(columns[0], **{name: columns[1] if len(columns) == 2 else ""})


def _of_object(values: dict[str, Any], scoring: bool) -> Request:
    _check_strings(values, ("text", "translation") if scoring else ("text",))
    read = {name: values.get(name, "") for name in FIELDS}
    _check_strings(read, FIELDS)
    return Request(**read, others=_without_answer(values))


def _check_strings(values: dict[str, Any], names: Sequence[str]) -> None:
    for name in names:
        if not isinstance(values.get(name), str):
            raise UserError(f"{name!r} must be a string")


def _without_answer(values: dict[str, Any], answered: Set[str] = ANSWERED) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name not in answered}


def read_object(text: str, name: str) -> dict[str, Any]:
    """A JSON object that can be written again. Raises UserError for a text that is not one."""
    try:
        values = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{name} is not JSON: {_reason(error)}") from error
    if not isinstance(values, dict):
        raise UserError(f'{name} is not a JSON object, such as {{"text": "..."}}')
    try:
        json.dumps(values, ensure_ascii=False, allow_nan=False).encode()
    except UnicodeEncodeError:
        raise UserError(
            f"{name} has half a surrogate pair (such as \\ud83d alone): write both halves"
        ) from None
    except ValueError:
        raise UserError(f"{name} has a number that JSON does not allow: NaN or infinity") from None
    return values


def _reason(error: ValueError | RecursionError) -> str:
    """Why a line is not JSON, in words for those who do not know Python."""
    if isinstance(error, json.JSONDecodeError):
        return f"{error.msg} (character {error.pos + 1:,})"
    is_nested = isinstance(error, RecursionError)
    return "it is nested too deeply" if is_nested else "a number in it has too many digits"


def as_text(number: int, answers: Sequence[Answer], listing: bool) -> list[str]:
    """Lines of text for a request: the translation; in an n-best list each with the number of its
    request, from 0, and its score, as Moses writes them; and the alignment after bars."""
    lines = []
    for answer in answers:
        text = answer.translation
        parts = [one_line(text) if "\n" in text else text]
        if listing:
            parts = [str(number), *parts, f"{answer.score:.6f}"]
        if answer.alignment is not None:
            parts.append(answer.alignment)
        lines.append(" ||| ".join(parts))
    return lines


def as_scores(answer: Answer) -> str:
    """A line for a scored translation: its log-probability, and the mean per token."""
    log_prob = answer.log_prob or 0.0
    mean = log_prob / max(len(answer.log_probs or ()), 1)
    scores = f"{log_prob:.6f}\t{mean:.6f}"
    return scores if answer.alignment is None else f"{scores}\t{answer.alignment}"


def as_json(request: Request, answers: Sequence[Answer], listing: bool) -> str:
    """A line of JSON for one request: its own fields, the best answer, and with `listing` all."""
    values = answers[0].fields()
    if listing:
        values["nbest"] = [answer.fields() for answer in answers]
    return as_object(request, values)


def as_object(request: Request, answer: dict[str, Any]) -> str:
    """A line of JSON: the fields of the request, and those of the answer."""
    known = {"text": request.text} | ({"prefix": request.prefix} if request.prefix else {})
    return json.dumps(known | request.others | answer, ensure_ascii=False)


def as_error(line: str, form: Form, sentence: str, answered: Set[str] = ANSWERED) -> str:
    """A line of JSON for a line without an answer: its fields, if it can be read and without those
    that are `answered`, and the error."""
    if form == "json":
        try:
            fields = _without_answer(read_object(line, "this"), answered)
        except UserError:
            fields = {}
    else:
        fields = {"text": line.partition("\t")[0] if form == "tsv" else line}
    return json.dumps(fields | {"error": sentence}, ensure_ascii=False)
