"""Questions of many people, answered together."""

import asyncio
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

Answer = Callable[[Hashable, list[str]], Sequence[Any]]
"""Of a kind of question and texts, to one answer for each text."""


class BusyError(Exception):
    """So many questions wait that no more are taken."""


class _Waiting(NamedTuple):
    kind: Hashable
    text: str
    future: asyncio.Future


class RequestBatcher:
    """Asks `answer` in a thread of its own; what comes meanwhile waits, and then goes at once.

    Questions of one kind go together, the earliest first, in one of a few `sizes`, 1 among them: a
    program is compiled for each. Where they fail together each is asked alone, so that only the one
    that is to blame fails.
    """

    def __init__(self, answer: Answer, sizes: Sequence[int], most_waiting: int):
        self.answer, self.sizes, self.most_waiting = answer, sizes, most_waiting
        self.waiting: list[_Waiting] = []
        self.come = asyncio.Event()
        self.thread = ThreadPoolExecutor(1)

    async def ask(self, kind: Hashable, texts: Sequence[str]) -> list[Any]:
        """The answer to each text. Raises BusyError, and then none of them is asked."""
        if len(self._drop_those_who_left()) + len(texts) > self.most_waiting:
            raise BusyError
        loop = asyncio.get_running_loop()
        asked = [_Waiting(kind, text, loop.create_future()) for text in texts]
        self.waiting += asked
        self.come.set()
        found = await asyncio.gather(*(one.future for one in asked), return_exceptions=True)
        for one in found:
            if isinstance(one, BaseException):
                raise one
        return found

    async def work(self) -> None:
        """Answers until it is cancelled."""
        while True:
            await self.come.wait()
            while self._drop_those_who_left():
                kind = self.waiting[0].kind
                batch = [one for one in self.waiting if one.kind == kind]
                batch = batch[: max(size for size in self.sizes if size <= len(batch))]
                self.waiting = [one for one in self.waiting if one not in batch]
                await self._answer(kind, batch)
            self.come.clear()

    def _drop_those_who_left(self) -> list[_Waiting]:
        """Those who still wait."""
        self.waiting = [one for one in self.waiting if not one.future.done()]
        return self.waiting

    async def _answer(self, kind: Hashable, batch: list[_Waiting]) -> None:
        texts = [one.text for one in batch]
        loop = asyncio.get_running_loop()
        try:
            found = await loop.run_in_executor(self.thread, self.answer, kind, texts)
            answers = [*zip(batch, found, strict=True)]
        except Exception as error:
            for one in batch:
                if len(batch) > 1:
                    await self._answer(kind, [one])
                elif not one.future.done():
                    one.future.set_exception(error)
            return
        for one, answer in answers:
            if not one.future.done():  # who asked may have gone
                one.future.set_result(answer)
