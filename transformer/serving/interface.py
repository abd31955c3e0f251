"""The page and the JSON interface of served runs, as a web application (extra `server`).

`/translate`, `/detect`, `/languages` and `/health` are those of LibreTranslate, so that its clients
work (https://docs.libretranslate.com); the page asks `/runs` and `/answer`, which know more.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import Route

from transformer.data.languages import name_of, same_language, standard_code
from transformer.data.tokenizer import Tokenizer
from transformer.decoding.lines import Line, one_line, split_lines
from transformer.errors import UserError
from transformer.serving.access import HEADERS, RefusedError, access, refused
from transformer.serving.batcher import BusyError, RequestBatcher
from transformer.serving.detection import confidences
from transformer.serving.fields import read_fields
from transformer.serving.limits import Limits
from transformer.serving.service import ModelService, Options

PACKAGE = Path(__file__).parents[1]
FILES = {
    "page.html": PACKAGE / "serving/page/page.html",
    "page.js": PACKAGE / "serving/page/page.js",
    "attention.js": PACKAGE / "viewing/page/attention.js",
    "style.css": PACKAGE / "viewing/page/style.css",
}
"""What the page consists of; the report has two of them in common with it."""

TOGETHER = (1, 4, 16)
"""Texts that are answered together. A search goes on with a quarter of them when the others are
done, so that a power of four leads to another."""

LOOK = 0.5
"""Seconds after which it is looked again whether a client is still there."""


def make_application(
    runs: Sequence[ModelService],
    limits: Limits,
    hosts: Sequence[str] = ("*",),
    origins: Sequence[str] = (),
) -> Starlette:
    """The application. It answers requests for these hosts alone, "*" for any, and lets pages of
    these origins read the answers."""
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
            Route("/detect", interface.detect, methods=["POST"]),
            Route("/languages", interface.languages),
            Route("/health", interface.health),
            Route("/runs", interface.described),
            *(Route(f"/{name}", _file(name)) for name in FILES),
            Route("/", _file("page.html")),
        ],
        lifespan=life,
        middleware=access(hosts, origins),
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
        return FileResponse(FILES[name], headers=HEADERS)

    return answer


def answered(value: Any) -> Response:
    """The value as JSON."""
    return JSONResponse(value, headers=HEADERS)


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


class Interface:
    """What is answered of some runs."""

    def __init__(self, runs: Sequence[ModelService], limits: Limits):
        self.runs, self.limits = {run.name: run for run in runs}, limits
        self.translators = [run for run in runs if run.kind == "translator"]
        self.together = RequestBatcher(self._answer, TOGETHER, limits.waiting)

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

    async def detect(self, request: Request) -> Response:
        """LibreTranslate's: {"q"} to the languages that it may be in, the likeliest first."""
        texts = self._texts((await self._values(request)).get("q"))
        found = confidences(self._vocabularies(), "\n".join(texts))
        return answered([{"confidence": n, "language": name} for name, n in found.items()])

    async def answer(self, request: Request) -> Response:
        """All that a run says of a text, line by line: {"run", "text", and its options}."""
        values = {**await self._values(request)}
        name, text = values.pop("run", None), values.pop("text", None)
        if name is None and len(self.runs) == 1:
            [name] = self.runs
        if not isinstance(name, str) or name not in self.runs:
            raise RefusedError(400, f"'run' must be one of: {', '.join(self.runs)}")
        run = self.runs[name]
        [lines] = await self._ask(request, run, self._texts([text]), run.options(values))
        return answered({"run": name, "kind": run.kind, "answers": [a for _, a in lines]})

    async def translate(self, request: Request) -> Response:
        """LibreTranslate's: {"q", "source", "target"}, and if wanted "alternatives"."""
        values = await self._values(request)
        asked = values.get("q")
        source, target = values.get("source"), values.get("target")
        detected = self._detected(target, asked) if source == "auto" else None
        run, tag = self._translator(detected["language"] if detected else source, target)
        if values.get("format") not in (None, "", "text"):
            raise RefusedError(400, "'format' must be text: markup would be translated like words")
        wanted = 1 + _number(values.get("alternatives"), "alternatives")
        options = run.options({"nbest": min(wanted, run.config.decode.beam_size)})
        found = await self._ask(request, run, self._texts(asked), options, tag)
        answer: dict[str, list] = {
            "translatedText": [
                "".join(line.around(a["translation"]) for line, a in of) for of in found
            ]
        }
        if wanted > 1:
            answer["alternatives"] = [_alternatives(of_one) for of_one in found]
        if detected:
            answer["detectedLanguage"] = [detected for _ in found]
        if not isinstance(asked, list):
            answer = {name: each[0] for name, each in answer.items()}
        return answered(answer)

    def _translator(self, source: Any, target: Any) -> tuple[ModelService, str]:
        """The first run between these languages, or these in another region, and its target tag, ""
        where it needs none."""
        pairs = [(run, into) for run in self.translators for into in run.targets]
        offered = [(run.config.data.source, into) for run, into in pairs]
        offered = [tuple(map(standard_code, pair)) for pair in offered]
        asked = [standard_code(code) if isinstance(code, str) else "" for code in (source, target)]
        fitting = [pair for pair in offered if all(map(same_language, pair, asked))]
        if not fitting:
            names = ", ".join(" to ".join(pair) for pair in dict.fromkeys(offered))
            raise RefusedError(400, f"'source' and 'target' must be one of: {names or 'none'}")
        nearest = max(fitting, key=lambda pair: (pair[1] == asked[1], pair[0] == asked[0]))
        run, into = pairs[offered.index(nearest)]
        return run, run.targets[into]

    def _detected(self, target: Any, asked: Any) -> dict[str, Any] | None:
        """The likeliest of the languages that are translated into `target`, None if there are none.
        Raises RefusedError where several are equally likely."""
        known = self._vocabularies(target)
        found = confidences(known, "\n".join(self._texts(asked)) if len(known) > 1 else "")
        if len(found) > 1 and [*found.values()].count(max(found.values())) > 1:
            raise RefusedError(400, f"'source' cannot be told: name it, {' or '.join(found)}")
        return next(({"language": one, "confidence": n} for one, n in found.items()), None)

    def _vocabularies(self, target: Any = None) -> dict[str, list[Tokenizer]]:
        """Those of each language that is translated, into `target` if that is not None."""
        found: dict[str, list[Tokenizer]] = {}
        for run in self.translators:
            if target is None or any(same_language(into, str(target)) for into in run.targets):
                language = standard_code(run.config.data.source)
                found.setdefault(language, []).append(run.tokenizers.source)
        return found

    def _texts(self, asked: Any) -> list[str]:
        """A text or a list of texts as a list. Raises RefusedError for what is neither or long."""
        texts = asked if isinstance(asked, list) else [asked]
        if not texts or not all(isinstance(text, str) for text in texts):
            raise RefusedError(400, "'q' or 'text' must be a text; 'q' may be a list of texts")
        if (count := sum(map(len, texts))) > self.limits.characters:
            limit = f"{self.limits.characters:,} may be asked"
            raise RefusedError(413, f"{count:,} characters: {limit}")
        return texts

    async def _ask(
        self, request: Request, run: ModelService, texts: list[str], options: Options, tag: str = ""
    ) -> list[list[tuple[Line, dict[str, Any]]]]:
        """For each text its lines with the answer to each; but for a translator it is one line."""
        lines = [
            [Line.of(*line) for line in split_lines(text)]
            if run.kind == "translator"
            else [Line("", one_line(text), "")]
            for text in texts
        ]
        if (count := max(len(texts), sum(map(len, lines)))) > self.limits.lines:
            raise RefusedError(413, f"{count:,} lines: {self.limits.lines:,} may be asked")
        flat = []
        for of_one in lines:
            asked = [line.text for line in of_one]
            flat += run.tagged(asked, tag) if run.kind == "translator" else asked
        for line in flat:
            run.check(line)
        asking = self.together.ask((run.name, options), flat)
        answers = iter(await _unless_gone(request, asking))
        return [[(line, next(answers)) for line in of_one] for of_one in lines]

    async def _values(self, request: Request) -> Mapping[str, Any]:
        """The fields of a request. Raises UserError or RefusedError."""
        body, limit, seconds = bytearray(), self.limits.bytes, self.limits.seconds
        try:
            async with asyncio.timeout(seconds):
                async for chunk in request.stream():
                    body += chunk
                    if len(body) > limit:
                        raise RefusedError(413, f"a request must have at most {limit:,} bytes")
        except TimeoutError:
            raise RefusedError(408, f"the request took more than {seconds:g} s") from None
        return read_fields(request.headers.get("content-type", ""), bytes(body))


def _number(value: Any, name: str) -> int:
    """Forms have numbers as text, and some clients send null or nothing for what is not set."""
    if value in (None, ""):
        return 0
    if isinstance(value, str) and value.isdecimal() and len(value) < 10:
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise RefusedError(400, f"{name!r} must be a whole number, 0 or more")
    return value


def _alternatives(lines: list[tuple[Line, dict[str, Any]]]) -> list[str]:
    """All but the best translation of a text of one line."""
    if len(lines) != 1:
        return []
    [(line, answer)] = lines
    return [line.around(one["text"]) for one in answer.get("nbest", [])[1:]]
