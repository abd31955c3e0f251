"""The page and the JSON interface of served runs, as a web application (extra `server`).

`/translate`, `/languages` and `/health` are those of LibreTranslate, so that its clients work
(https://docs.libretranslate.com); the page asks `/runs` and `/answer`, which know more.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import Route

from transformer.data.languages import name_of, same_language, standard_code
from transformer.decoding.requests import read_object
from transformer.errors import UserError
from transformer.viewing.limits import Limits
from transformer.viewing.served import Options, Served
from transformer.viewing.together import BusyError, Together

FOLDER = Path(__file__).parent / "page"
FILES = ("page.html", "page.js", "attention.js", "style.css")
HEADERS = {
    "Content-Security-Policy": "default-src 'self'; img-src data:; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}
FORM = "application/x-www-form-urlencoded"
TOGETHER = (1, 4, 16)
"""Texts that are answered together. A search goes on with a quarter of them when the others are
done, so that a power of four leads to another."""

LOOK = 0.5
"""Seconds after which it is looked again whether a client is still there."""

LONGEST_REFUSAL = 500
"""Letters: a mistake is shown, but not all of a text that is full of it."""


class RefusedError(Exception):
    """A request that is not answered: an HTTP status, and a sentence."""

    def __init__(self, status: int, sentence: str):
        super().__init__(sentence)
        self.status = status


def make_application(
    runs: Sequence[Served], limits: Limits, hosts: Sequence[str] = ("*",)
) -> Starlette:
    """The application. It answers requests for these hosts alone, "*" for any: a page elsewhere
    could else have its own name lead to this machine, and read the answers."""
    interface = Interface(runs, limits)

    @asynccontextmanager
    async def life(_: Starlette) -> AsyncIterator[None]:
        task = asyncio.create_task(interface.together.work())
        yield
        task.cancel()

    return Starlette(
        routes=[
            Route("/translate", interface.translate, methods=["POST"]),
            Route("/answer", interface.answer, methods=["POST"]),
            Route("/languages", interface.languages),
            Route("/health", interface.health),
            Route("/runs", interface.described),
            *(Route(f"/{name}", _file(name)) for name in FILES),
            Route("/", _file("page.html")),
        ],
        lifespan=life,
        middleware=[Middleware(TrustedHostMiddleware, allowed_hosts=list(hosts))],
        exception_handlers={
            RefusedError: lambda _, error: refused(error.status, str(error)),
            UserError: lambda _, error: refused(400, str(error)),
            BusyError: lambda *_: refused(503, "too many texts wait: ask again in a second"),
            ClientDisconnect: lambda *_: refused(400, "the request has no end"),
            HTTPException: lambda _, error: refused(error.status_code, error.detail, error.headers),
            Exception: lambda *_: refused(500, "this failed, and its log says why"),
        },
    )


def _file(name: str) -> Callable:
    """What answers with a file of the page. Which one never depends on the request."""

    async def answer(_: Request) -> Response:
        return FileResponse(FOLDER / name, headers=HEADERS)

    return answer


def refused(status: int, sentence: str, headers: Mapping[str, str] | None = None) -> Response:
    """What LibreTranslate's clients show."""
    shown = sentence if len(sentence) <= LONGEST_REFUSAL else f"{sentence[:LONGEST_REFUSAL]} ..."
    return JSONResponse({"error": shown}, status, HEADERS | dict(headers or {}))


def answered(value: Any) -> Response:
    """The value as JSON."""
    return JSONResponse(value, headers=HEADERS)


class Interface:
    """What is answered of some runs."""

    def __init__(self, runs: Sequence[Served], limits: Limits):
        self.runs, self.limits = {run.name: run for run in runs}, limits
        self.translators = [run for run in runs if run.kind == "translator"]
        self.together = Together(self._answer, TOGETHER, limits.waiting)

    def _answer(self, kind: tuple[str, Options], texts: Sequence[str]) -> list[dict[str, Any]]:
        name, options = kind
        return self.runs[name].answer(texts, options)

    async def health(self, _: Request) -> Response:
        """LibreTranslate's: all is well."""
        return answered({"status": "ok"})

    async def described(self, _: Request) -> Response:
        """What the page offers."""
        return answered([run.description() for run in self.runs.values()])

    async def languages(self, _: Request) -> Response:
        """LibreTranslate's: each language, and into which ones it is translated."""
        targets: dict[str, list[str]] = {}
        for run in self.translators:
            into = [standard_code(target) for target in run.targets]
            targets.setdefault(standard_code(run.config.data.source), []).extend(into)
            for target in into:
                targets.setdefault(target, [])
        return answered(
            [
                {"code": code, "name": name_of(code), "targets": sorted({*targets[code]})}
                for code in targets
            ]
        )

    async def answer(self, request: Request) -> Response:
        """All that a run says of a text, line by line: {"run", "text", and its options}."""
        values = {**await self._values(request)}
        name, text = values.pop("run", None), values.pop("text", None)
        if name is None and len(self.runs) == 1:
            [name] = self.runs
        if not isinstance(name, str) or name not in self.runs:
            raise RefusedError(400, f"'run' must be one of: {', '.join(self.runs)}")
        run = self.runs[name]
        [answers] = await self._ask(request, run, [text], run.options(values))
        return answered({"run": name, "kind": run.kind, "answers": answers})

    async def translate(self, request: Request) -> Response:
        """LibreTranslate's: {"q", "source", "target"}, and if wanted "alternatives"."""
        values = await self._values(request)
        asked = values.get("q")
        run, tag = self._translator(values.get("source"), values.get("target"))
        if values.get("format", "text") != "text":
            raise RefusedError(400, "'format' must be text: markup would be translated like words")
        wanted = 1 + _number(values.get("alternatives", 0), "alternatives")
        options = run.options({"nbest": min(wanted, run.config.decode.beam_size)})
        texts = asked if isinstance(asked, list) else [asked]
        found = await self._ask(request, run, texts, options, tag)
        answer = {"translatedText": ["\n".join(a["translation"] for a in of) for of in found]}
        if wanted > 1:
            answer["alternatives"] = [_alternatives(of_one) for of_one in found]
        if values.get("source") == "auto":
            language = {
                "language": standard_code(run.config.data.source),
                "confidence": 0,
            }  # nothing is detected
            answer["detectedLanguage"] = [language for _ in found]
        if not isinstance(asked, list):
            answer = {name: each[0] for name, each in answer.items()}
        return answered(answer)

    def _translator(self, source: Any, target: Any) -> tuple[Served, str]:
        """The first run between these languages, or these in another region, and its target tag, ""
        where it needs none; from "auto", if only one language is translated into the target."""
        pairs = [(run, into) for run in self.translators for into in run.targets]
        offered = [(run.config.data.source, into) for run, into in pairs]
        offered = [tuple(map(standard_code, pair)) for pair in offered]
        asked = [standard_code(code) if isinstance(code, str) else "" for code in (source, target)]
        fitting = [pair for pair in offered if same_language(pair[1], asked[1])]
        if source != "auto":
            fitting = [pair for pair in fitting if same_language(pair[0], asked[0])]
        elif len({source for source, _ in fitting}) > 1:
            fitting = []
        if not fitting:
            names = ", ".join(" to ".join(pair) for pair in dict.fromkeys(offered))
            raise RefusedError(400, f"'source' and 'target' must be one of: {names or 'none'}")
        nearest = max(fitting, key=lambda pair: (pair[1] == asked[1], pair[0] == asked[0]))
        run, into = pairs[offered.index(nearest)]
        return run, run.targets[into]

    async def _ask(
        self, request: Request, run: Served, texts: list, options: Options, tag: str = ""
    ) -> list[list[dict[str, Any]]]:
        """For each text the answer to each of its lines; but for a translator it is one line."""
        if not texts or not all(isinstance(text, str) for text in texts):
            raise RefusedError(400, "'q' or 'text' must be a text; 'q' may be a list of texts")
        limits = self.limits
        if (count := sum(map(len, texts))) > limits.characters:
            raise RefusedError(413, f"{count:,} characters: {limits.characters:,} may be asked")
        lines = [text.splitlines() for text in texts]
        if run.kind != "translator":
            lines = [[" ".join(of_one)] for of_one in lines]
        if (count := max(len(texts), sum(map(len, lines)))) > limits.lines:
            raise RefusedError(413, f"{count:,} lines: {limits.lines:,} may be asked")
        if run.kind == "translator":
            lines = [run.tagged(of_one, tag) for of_one in lines]
        flat = [line for of_one in lines for line in of_one]
        for line in flat:
            run.check(line)
        asking = self.together.ask((run.name, options), flat)
        answers = iter(await _unless_gone(request, asking))
        return [[next(answers) for _ in of_one] for of_one in lines]

    async def _values(self, request: Request) -> Mapping[str, Any]:
        """The fields of a JSON object or of a form. Raises UserError or RefusedError."""
        body, limit, seconds = bytearray(), self.limits.bytes, self.limits.seconds
        try:
            async with asyncio.timeout(seconds):
                async for chunk in request.stream():
                    body += chunk
                    if len(body) > limit:
                        raise RefusedError(413, f"a request must have at most {limit:,} bytes")
        except TimeoutError:
            raise RefusedError(408, f"the request took more than {seconds:g} s") from None
        kind = request.headers.get("content-type", FORM).partition(";")[0].strip().lower()
        try:
            if kind == FORM:
                fields = parse_qs(body.decode(), keep_blank_values=True, errors="strict")
                return {name: values[0] for name, values in fields.items()}
            if kind == "application/json":
                return read_object(body.decode(), "the request")
        except ValueError as error:
            raise RefusedError(400, f"the request is not UTF-8: {error}") from None
        raise RefusedError(415, f"send application/json or {FORM}")


async def _unless_gone(request: Request, asking: Awaitable) -> Any:
    """What is asked, given up when the client has gone."""
    task = asyncio.ensure_future(asking)
    try:
        while not (await asyncio.wait({task}, timeout=LOOK))[0]:
            if await request.is_disconnected():
                raise ClientDisconnect
        return task.result()
    finally:
        task.cancel()


def _number(value: Any, name: str) -> int:
    """Forms have numbers as text."""
    if isinstance(value, str) and value.isdecimal() and len(value) < 10:
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise RefusedError(400, f"{name!r} must be a whole number, 0 or more")
    return value


def _alternatives(answers: list[dict[str, Any]]) -> list[str]:
    """All but the best translation of a text of one line."""
    if len(answers) != 1:
        return []
    return [one["text"] for one in answers[0].get("nbest", [])[1:]]
