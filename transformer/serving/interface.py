"""The page and the JSON interface of the models that are served (extra `server`).

`/translate`, `/translate_file`, `/detect`, `/languages` and `/health` are LibreTranslate's, for its
clients (https://docs.libretranslate.com); the page uses `/runs` and `/answer`, which give more.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Mapping, Sequence
from concurrent.futures import CancelledError
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from threading import Event
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import Route

from transformer.data.languages import standard_code
from transformer.data.tag_names import code_of
from transformer.decoding.lines import Line, one_line, split_lines
from transformer.documents import FORMATS, Format
from transformer.documents.document import segments
from transformer.documents.formats import declared_source, format_of, read_document, read_text
from transformer.documents.placement import Aligned
from transformer.documents.translation import Handling, all_translated
from transformer.errors import UserError
from transformer.serving.access import HEADERS, refused
from transformer.serving.batcher import RequestBatcher
from transformer.serving.files import TranslatedFiles
from transformer.serving.languages import Languages
from transformer.serving.requests import Limits, RefusedError, UploadedFile, read_fields
from transformer.serving.service import ModelService, Options

PACKAGE = Path(__file__).parents[1]
FILES = [
    *(PACKAGE / "serving/page" / name for name in ("page.html", "page.js")),
    *(PACKAGE / "viewing/page" / name for name in ("attention.js", "style.css")),
]
"""The files of the page; it shares two of them with the report."""

BATCH_SIZES = (1, 4, 16)
"""A search shrinks to a quarter of its rows when the others have finished, so that powers of four
lead to one another."""

MOST_READ = 50_000_000
"""Bytes of a request that are read even if they are too many: a client that still sends when the
connection is closed does not see the answer."""

CONNECTION_CHECK = CAPACITY_CHECK = 0.5
"""Seconds between checks whether a client is still connected, and whether the queue has capacity
for sentences of a document."""


def make_application(
    services: Sequence[ModelService], limits: Limits, middleware: Sequence[Middleware]
) -> Starlette:
    """The application; its middleware decides who may use it."""
    interface = Interface(services, limits)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        task = asyncio.create_task(interface.batcher.run())
        yield
        task.cancel()

    return Starlette(
        routes=[
            Route("/translate", interface.translate, methods=["POST"]),
            Route("/answer", interface.answer, methods=["POST"]),
            Route("/translate_file", interface.translate_file, methods=["POST"]),
            Route("/download_file/{name}", interface.download_file),
            Route("/detect", interface.detect, methods=["POST"]),
            Route("/languages", interface.list_languages),
            Route("/health", interface.health),
            Route("/runs", interface.list_runs),
            Route("/", partial(send_file, FILES[0])),
            *(Route(f"/{path.name}", partial(send_file, path)) for path in FILES),
        ],
        lifespan=lifespan,
        middleware=middleware,
        exception_handlers={
            RefusedError: lambda _, error: refused(error.status, str(error)),
            UserError: lambda _, error: refused(400, str(error)),
            ClientDisconnect: lambda *_: refused(400, "the client has disconnected"),
            HTTPException: lambda _, error: refused(error.status_code, error.detail, error.headers),
            Exception: lambda *_: refused(500, "internal error: see the log of the server"),
        },
    )


async def send_file(path: Path, _: Request) -> Response:
    """A file of the page; which one does not depend on the request."""
    return FileResponse(path, headers=HEADERS)


def as_json(value: Any) -> Response:
    """The value as a response."""
    return JSONResponse(value, headers=HEADERS)


class Interface:
    """The endpoints."""

    def __init__(self, services: Sequence[ModelService], limits: Limits):
        self.services, self.limits = {one.name: one for one in services}, limits
        self.files = TranslatedFiles()
        self.languages = Languages([one for one in services if one.kind == "translator"])
        # Texts for one model with the same options may be batched.
        answer = lambda key, texts: key[0](texts, key[1])  # noqa: E731
        self.batcher = RequestBatcher(answer, BATCH_SIZES, limits.waiting)

    async def health(self, _: Request) -> Response:
        """LibreTranslate's."""
        return as_json({"status": "ok"})

    async def list_runs(self, _: Request) -> Response:
        """The runs that the page offers."""
        return as_json([one.description() for one in self.services.values()])

    async def list_languages(self, _: Request) -> Response:
        """LibreTranslate's: each language, and those that it is translated into."""
        return as_json(self.languages.described())

    async def detect(self, request: Request) -> Response:
        """LibreTranslate's: {"q"} to the languages that it may be in, the likeliest first."""
        texts = self._texts((await self._fields(request)).get("q"))
        found = self.languages.detect("\n".join(texts))
        return as_json([{"confidence": n, "language": code} for code, n in found.items()])

    async def answer(self, request: Request) -> Response:
        """All that a run answers, line by line: {"run", "text", and its options}."""
        fields = {**await self._fields(request)}
        name, text = fields.pop("run", None), fields.pop("text", None)
        if name is None and len(self.services) == 1:
            [name] = self.services
        if not isinstance(name, str) or name not in self.services:
            raise UserError(f"'run' must be one of: {', '.join(self.services)}")
        service, [text] = self.services[name], self._texts([text])
        lines = [one_line(text)]
        if service.kind == "translator":
            lines = service.tagged([Line.of(*line).text for line in split_lines(text)], "")
        [answers] = await self._answers(request, service, service.options(fields), [lines])
        return as_json({"run": name, "kind": service.kind, "answers": answers})

    async def translate(self, request: Request) -> Response:
        """LibreTranslate's: {"q", "source", "target"}, and optionally "alternatives" and "format";
        the response also has the number of "truncated" translations if there are any."""
        fields = await self._fields(request)
        source, target, q = fields.get("source"), fields.get("target"), fields.get("q")
        form, detected = fields.get("format") or "text", None
        if source == "auto" and (
            detected := await self._detected_source(self._texts(q), form, target)
        ):
            source = detected["language"]
        service, tag = self.languages.find(source, target)
        wanted = 1 + _alternatives(fields.get("alternatives"))
        if form in FORMATS:
            texts = self._texts(q)
            _check_limit(len(texts), self.limits.lines, "lines")
            translated, truncated = await self._documents(request, service, tag, form, texts)
            response = _response(q, translated, wanted, [[]] * len(texts), detected)
            return as_json(response | _truncated(truncated))
        if form != "text":
            raise UserError(f"'format' must be one of: text, {', '.join(FORMATS)}")
        options = service.options({"nbest": min(wanted, service.config.decode.beam_size)})
        texts = [[Line.of(*line) for line in split_lines(text)] for text in self._texts(q)]
        tagged = [service.tagged([line.text for line in lines], tag) for lines in texts]
        found = [*zip(texts, await self._answers(request, service, options, tagged))]
        translated = [
            "".join(line.around(one["translation"]) for line, one in zip(*pair)) for pair in found
        ]
        alternatives = [
            [lines[0].around(one["text"]) for one in answers[0].get("nbest", [])[1:]]
            if len(lines) == 1
            else []
            for lines, answers in found
        ]
        truncated = sum("truncated" in answer for _, answers in found for answer in answers)
        response = _response(q, translated, wanted, alternatives, detected)
        return as_json(response | _truncated(truncated))

    async def translate_file(self, request: Request) -> Response:
        """LibreTranslate's: a form with {"file", "source", "target"}, and optionally "run", to
        {"translatedFileUrl"}, and the number of "truncated" translations if there are any."""
        fields = await self._fields(request, self.limits.file_bytes)
        file, source, target = fields.get("file"), fields.get("source"), fields.get("target")
        if not isinstance(file, UploadedFile):
            raise UserError("'file' must be a file: send multipart/form-data")
        form, text = format_of(file.name), read_text(file.content, repr(file.name))
        _check_limit(len(text), self.limits.file_characters, "characters in a file")
        if source == "auto":
            found = await self._detected_source([text], form, target)
            source = found and found["language"]
        service, tag = self.languages.find(source, target, fields.get("run"))
        [text], truncated = await self._documents(request, service, tag, form, [text])
        name = self.files.keep(file.name, str(target), text)
        url = f"{request.base_url}download_file/{name}"
        return as_json({"translatedFileUrl": url} | _truncated(truncated))

    async def download_file(self, request: Request) -> Response:
        """LibreTranslate's: a file that was translated."""
        content = self.files.get(request.path_params["name"])
        if content is None:
            raise RefusedError(404, "there is no such file, or no longer: translate it again")
        attachment = {"Content-Disposition": "attachment"}
        return Response(
            content, headers=HEADERS | attachment, media_type="application/octet-stream"
        )

    async def _detected_source(
        self, texts: list[str], form: str, target: Any
    ) -> dict[str, Any] | None:
        """The likeliest source language of texts or documents, by what is translated of them; the
        one that they name, if their format has that."""
        if form in ("xliff", "tmx"):
            return {"language": standard_code(declared_source(texts[0])), "confidence": 100.0}
        if form in FORMATS:
            texts = await asyncio.to_thread(_translated_texts, texts, form, str(target))
        text = "\n".join(texts)[: self.limits.characters]
        return self.languages.detect_source(text, target)

    async def _documents(
        self, request: Request, service: ModelService, tag: str, form: Format, texts: list[str]
    ) -> tuple[list[str], int]:
        """Translated documents, and the number of truncated translations. They are read and written
        in a thread, which waits for capacity in the queue for as many sentences at once as a
        request may have lines."""
        loop, size = asyncio.get_running_loop(), self.limits.lines
        has_left = Event()
        every: list[Aligned] = []

        def translate(sentences: list[str], needs_alignment: bool) -> list[Aligned]:
            tagged = service.tagged(sentences, tag)
            for sentence in tagged:
                service.check(sentence)
            found: list[Aligned] = []
            for start in range(0, len(tagged), size):
                if has_left.is_set():
                    raise CancelledError
                key = service.translated_sentences, needs_alignment
                waiting = self._when_there_is_capacity(key, tagged[start : start + size])
                found += asyncio.run_coroutine_threadsafe(waiting, loop).result()
            every.extend(found)
            return found

        def documents() -> list[str]:
            data = service.config.data
            languages = data.source, code_of(tag) if tag else data.target
            read = [read_document(text, form, languages) for text in texts]
            return all_translated(read, translate, Handling(data.source))

        try:
            translated = await _while_connected(request, asyncio.to_thread(documents))
        finally:
            has_left.set()
        return translated, sum(one.truncated for one in every)

    async def _when_there_is_capacity(self, key: Any, sentences: Sequence[str]) -> list[Aligned]:
        while True:
            try:
                return await self.batcher.submit(key, sentences)
            except RefusedError:
                await asyncio.sleep(CAPACITY_CHECK)

    def _texts(self, value: Any) -> list[str]:
        """A text or a list of texts as a list. Raises an error if it is neither, or too long."""
        texts = value if isinstance(value, list) else [value]
        if not texts or not all(isinstance(text, str) for text in texts):
            raise UserError("'q' or 'text' must be a string; 'q' may be a list of strings")
        _check_limit(sum(map(len, texts)), self.limits.characters, "characters")
        return texts

    async def _answers(
        self,
        request: Request,
        service: ModelService,
        options: Options,
        texts: Sequence[Sequence[str]],
    ) -> list[list[dict[str, Any]]]:
        """The answers to the lines of each text."""
        flat = [line for lines in texts for line in lines]
        _check_limit(max(len(texts), len(flat)), self.limits.lines, "lines")
        for line in flat:
            service.check(line)
        submitted = self.batcher.submit((service.answer, options), flat)
        answers = iter(await _while_connected(request, submitted))
        return [[next(answers) for _ in lines] for lines in texts]

    async def _fields(self, request: Request, most: int | None = None) -> Mapping[str, Any]:
        """The fields of a request of at most this many bytes. Raises UserError or RefusedError."""
        body, seconds, most = bytearray(), self.limits.seconds, most or self.limits.bytes
        size = 0
        try:
            async with asyncio.timeout(seconds):
                async for chunk in request.stream():
                    size += len(chunk)
                    if size > MOST_READ:
                        break
                    body += chunk if size <= most else b""
        except TimeoutError:
            _check_limit(size, most, "bytes")
            raise RefusedError(408, f"the request took more than {seconds:g} s") from None
        _check_limit(size, most, "bytes")
        return read_fields(request.headers.get("content-type", ""), bytes(body))


def _response(
    q: Any,
    translated: list[str],
    wanted: int,
    alternatives: list[list[str]],
    detected: Mapping[str, Any] | None,
) -> dict[str, Any]:
    """The answer of `/translate`, with lists where `q` is a list."""
    response: dict[str, list] = {"translatedText": translated}
    if wanted > 1:  # of texts of one line
        response["alternatives"] = alternatives
    if detected:
        response["detectedLanguage"] = [detected for _ in translated]
    return response if isinstance(q, list) else {name: one for name, [one] in response.items()}


def _truncated(count: int) -> dict[str, int]:
    """Added to a response: LibreTranslate's clients ignore what they do not know."""
    return {"truncated": count} if count else {}


async def _while_connected(request: Request, awaitable: Awaitable) -> Any:
    """Its result; it is cancelled if the client disconnects."""
    task = asyncio.ensure_future(awaitable)
    try:
        while not (await asyncio.wait({task}, timeout=CONNECTION_CHECK))[0]:
            if await request.is_disconnected():
                raise ClientDisconnect
        return task.result()
    finally:
        task.cancel()


def _translated_texts(texts: Sequence[str], form: Format, target: str) -> list[str]:
    """What is translated of documents."""
    documents = [read_document(text, form, ("", target)) for text in texts]
    return [segment.text for document in documents for segment in segments(document)]


def _check_limit(count: int, limit: int, unit: str) -> None:
    if count > limit:
        raise RefusedError(413, f"a request may have at most {limit:,} {unit}")


def _alternatives(value: Any) -> int:
    """Their number: forms send it as text, and some clients send null or "" if it is not set."""
    if value in (None, ""):
        return 0
    if isinstance(value, str) and value.isdecimal() and len(value) < 10:
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise UserError("'alternatives' must be an integer, 0 or more")
    return value
