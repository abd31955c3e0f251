"""Concurrent requests are batched, and each gets its own answer."""

import asyncio
import threading

import pytest

from transformer.serving.batcher import RequestBatcher
from transformer.serving.requests import RefusedError


def answers_to(requests, answer, sizes=(1, 2, 4), capacity=100):
    """The answers to requests (key, texts) that are submitted at once."""

    async def submit_all():
        batcher = RequestBatcher(answer, sizes, capacity)
        worker = asyncio.create_task(batcher.run())
        submitted = (batcher.submit(*request) for request in requests)
        found = await asyncio.gather(*submitted, return_exceptions=True)
        worker.cancel()
        return found

    return asyncio.run(submit_all())


def test_texts_of_one_key_are_batched_and_each_gets_its_own_answer():
    batches = []

    def answer(key, texts):
        batches.append((key, texts))
        return [f"{key} {text}" for text in texts]

    requests = [("a", ["1", "2"]), ("b", ["3"]), ("a", []), ("a", ["4"]), ("a", ["5", "6"])]
    found = answers_to(requests, answer)
    assert found == [["a 1", "a 2"], ["b 3"], [], ["a 4"], ["a 5", "a 6"]]
    assert batches == [("a", ["1", "2", "4", "5"]), ("b", ["3"]), ("a", ["6"])]


def test_texts_that_arrive_during_a_batch_are_the_next_batch():
    batches, begun, go_on = [], threading.Event(), threading.Event()

    def answer(_, texts):
        batches.append(texts)
        begun.set()
        go_on.wait()
        return texts

    async def submit():
        batcher = RequestBatcher(answer, (1, 3), 100)
        worker = asyncio.create_task(batcher.run())
        first = asyncio.create_task(batcher.submit("a", ["1"]))
        await asyncio.to_thread(begun.wait)
        others = [asyncio.create_task(batcher.submit("a", [text])) for text in "234"]
        await asyncio.sleep(0)
        go_on.set()
        found = [await task for task in (first, *others)]
        worker.cancel()
        return found

    assert asyncio.run(submit()) == [["1"], ["2"], ["3"], ["4"]]
    assert batches == [["1"], ["2", "3", "4"]]


def test_only_the_faulty_text_of_a_batch_fails():
    def answer(_, texts):
        return [1 / int(text) for text in texts]

    one, bad, two = answers_to([("a", ["1"]), ("a", ["0"]), ("a", ["2"])], answer)
    assert (one, two) == ([1.0], [0.5]) and isinstance(bad, ZeroDivisionError)


def test_a_request_that_exceeds_the_queue_is_refused_as_a_whole():
    found = answers_to(
        [("a", ["1", "2"]), ("a", ["3", "4"]), ("a", ["5"])], lambda _, t: t, (1, 2), 3
    )
    assert isinstance(found[1], RefusedError) and found[1].status == 503
    assert [found[0], found[2]] == [["1", "2"], ["5"]]


def test_a_client_may_disconnect():
    go_on = threading.Event()

    def answer(_, texts):
        go_on.wait()
        return texts

    async def submit():
        batcher = RequestBatcher(answer, (1,), 100)
        worker = asyncio.create_task(batcher.run())
        cancelled = asyncio.create_task(batcher.submit("a", ["1"]))
        stays = asyncio.create_task(batcher.submit("a", ["2"]))
        await asyncio.sleep(0.01)
        cancelled.cancel()
        await asyncio.sleep(0)
        go_on.set()
        assert await stays == ["2"]
        with pytest.raises(asyncio.CancelledError):
            await cancelled
        worker.cancel()

    asyncio.run(submit())
