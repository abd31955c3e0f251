"""Questions that come together are answered together, each with its own answer."""

import asyncio
import threading

import pytest

from transformer.serving.batcher import BusyError, RequestBatcher


def answering(questions, answer, sizes=(1, 2, 4), most_waiting=100):
    """What each of the questions (kind, texts) gets, all asked at once."""

    async def ask_all():
        together = RequestBatcher(answer, sizes, most_waiting)
        worker = asyncio.create_task(together.work())
        asked = (together.ask(*question) for question in questions)
        found = await asyncio.gather(*asked, return_exceptions=True)
        worker.cancel()
        return found

    return asyncio.run(ask_all())


def test_questions_of_one_kind_go_together_and_each_gets_its_own_answer():
    batches = []

    def answer(kind, texts):
        batches.append((kind, texts))
        return [f"{kind} {text}" for text in texts]

    questions = [("a", ["1", "2"]), ("b", ["3"]), ("a", []), ("a", ["4"]), ("a", ["5", "6"])]
    found = answering(questions, answer)
    assert found == [["a 1", "a 2"], ["b 3"], [], ["a 4"], ["a 5", "a 6"]]
    assert batches == [("a", ["1", "2", "4", "5"]), ("b", ["3"]), ("a", ["6"])]


def test_what_comes_while_others_are_answered_waits_and_goes_at_once():
    batches, begun, go_on = [], threading.Event(), threading.Event()

    def answer(_, texts):
        batches.append(texts)
        begun.set()
        go_on.wait()
        return texts

    async def ask():
        together = RequestBatcher(answer, (1, 3), 100)
        worker = asyncio.create_task(together.work())
        first = asyncio.create_task(together.ask("a", ["1"]))
        await asyncio.to_thread(begun.wait)
        others = [asyncio.create_task(together.ask("a", [text])) for text in "234"]
        await asyncio.sleep(0)
        go_on.set()
        found = [await task for task in (first, *others)]
        worker.cancel()
        return found

    assert asyncio.run(ask()) == [["1"], ["2"], ["3"], ["4"]]
    assert batches == [["1"], ["2", "3", "4"]]


def test_one_that_fails_fails_alone():
    def answer(_, texts):
        return [1 / int(text) for text in texts]

    one, bad, two = answering([("a", ["1"]), ("a", ["0"]), ("a", ["2"])], answer)
    assert (one, two) == ([1.0], [0.5]) and isinstance(bad, ZeroDivisionError)


def test_more_than_may_wait_is_refused_whole():
    found = answering(
        [("a", ["1", "2"]), ("a", ["3", "4"]), ("a", ["5"])], lambda _, t: t, (1, 2), 3
    )
    assert isinstance(found[1], BusyError)
    assert [found[0], found[2]] == [["1", "2"], ["5"]]


def test_who_asked_may_go_away():
    go_on = threading.Event()

    def answer(_, texts):
        go_on.wait()
        return texts

    async def ask():
        together = RequestBatcher(answer, (1,), 100)
        worker = asyncio.create_task(together.work())
        gone = asyncio.create_task(together.ask("a", ["1"]))
        stays = asyncio.create_task(together.ask("a", ["2"]))
        await asyncio.sleep(0.01)
        gone.cancel()
        await asyncio.sleep(0)
        go_on.set()
        assert await stays == ["2"]
        with pytest.raises(asyncio.CancelledError):
            await gone
        worker.cancel()

    asyncio.run(ask())
