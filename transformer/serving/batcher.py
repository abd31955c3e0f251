"""Concurrent requests, batched."""

import asyncio
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

from transformer.serving.requests import RefusedError

Answer = Callable[[Any, list[str]], Sequence[Any]]
"""From a key and texts to the answer to each text."""


class _Queued(NamedTuple):
    key: Hashable
    text: str
    future: asyncio.Future


class RequestBatcher:
    """Calls `answer(key, texts)` in a thread of its own, with batches of the texts in the queue.

    Texts with the same key are batched, the oldest first, in one of a few `sizes`, since a program
    is compiled for each; 1 is one of them. If a batch fails, each of its texts is answered alone,
    so that only the faulty one fails.
    """

    def __init__(self, answer: Answer, sizes: Sequence[int], capacity: int):
        """The queue holds at most `capacity` texts."""
        self.answer, self.sizes, self.capacity = answer, sizes, capacity
        self.queue: list[_Queued] = []
        self.arrived = asyncio.Event()
        self.thread = ThreadPoolExecutor(1)

    async def submit(self, key: Hashable, texts: Sequence[str]) -> list[Any]:
        """The answer to each text. Raises RefusedError if the queue has no capacity for all."""
        self._drop_cancelled()
        if len(self.queue) + len(texts) > self.capacity:
            raise RefusedError(503, "too many texts are in the queue: try again in a second")
        loop = asyncio.get_running_loop()
        queued = [_Queued(key, text, loop.create_future()) for text in texts]
        self.queue += queued
        self.arrived.set()
        return await asyncio.gather(*(one.future for one in queued))

    async def run(self) -> None:
        """Answers requests until it is cancelled."""
        while True:
            self._drop_cancelled()
            if not self.queue:
                self.arrived.clear()
                await self.arrived.wait()
                continue
            key = self.queue[0].key
            batch = [one for one in self.queue if one.key == key]
            batch = batch[: max(size for size in self.sizes if size <= len(batch))]
            self.queue = [one for one in self.queue if one not in batch]
            await self._answer(key, batch)

    def _drop_cancelled(self) -> None:
        """Removes the texts of clients that have disconnected."""
        self.queue = [one for one in self.queue if not one.future.done()]

    async def _answer(self, key: Hashable, batch: list[_Queued]) -> None:
        texts = [one.text for one in batch]
        loop = asyncio.get_running_loop()
        try:
            found = await loop.run_in_executor(self.thread, self.answer, key, texts)
            answers = [*zip(batch, found, strict=True)]
        except Exception as error:
            for one in batch:
                if len(batch) > 1:
                    await self._answer(key, [one])
                elif not one.future.done():
                    one.future.set_exception(error)
            return
        for one, answer in answers:
            if not one.future.done():  # the client may have disconnected
                one.future.set_result(answer)
