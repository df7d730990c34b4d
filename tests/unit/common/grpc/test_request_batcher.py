"""Simultaneous requests are sent together."""

import asyncio
import gc
import weakref
from collections.abc import Sequence

import pytest

from ortoo.common.errors import NotFound, Unavailable
from ortoo.common.grpc.request_batcher import RequestBatcher
from ortoo.common.process.background import Background
from ortoo.common.process.clock import SystemClock


class Server:
    """Answers each number with its text, when it is allowed to."""

    def __init__(self) -> None:
        self.asked: list[list[int]] = []
        self.may_answer = asyncio.Semaphore(0)
        self.error: Exception | None = None

    async def answer(self, numbers: Sequence[int]) -> list[str]:
        self.asked.append(list(numbers))
        await self.may_answer.acquire()
        if self.error is not None:
            raise self.error
        return list(map(str, numbers))


async def turn() -> None:
    """One turn of the loop."""
    await SystemClock().sleep(0)


async def asked(server: Server, times: int) -> None:
    while len(server.asked) < times:
        await turn()


async def test_what_is_asked_meanwhile_goes_with_the_next_request() -> None:
    """One request at a time; each caller gets its own answer, and a request grows up to `size_max`."""
    async with Background("test") as background:
        server = Server()
        batcher = RequestBatcher(server.answer, background, size_max=3)
        first = background.spawn("first", batcher.request(1))
        await asked(server, 1)
        others = [background.spawn("other", batcher.request(number)) for number in (2, 3, 4, 5)]
        for _ in range(3):
            server.may_answer.release()
        assert [await task for task in (first, *others)] == ["1", "2", "3", "4", "5"]
        await batcher.wait_until_idle()
    assert server.asked == [[1], [2, 3, 4], [5]]


async def test_an_error_is_everybodys_who_asked_with_it() -> None:
    """The next request is not affected."""
    async with Background("test") as background:
        server = Server()
        batcher = RequestBatcher(server.answer, background, size_max=10)
        server.error = NotFound("gone", field="topic")
        server.may_answer.release()
        outcomes = await asyncio.gather(batcher.request(1), batcher.request(2), return_exceptions=True)
        assert list(outcomes) == [server.error, server.error]
        server.error = None
        server.may_answer.release()
        assert await batcher.request(3) == "3"


async def test_an_answer_that_nobody_waits_for_is_given_back() -> None:
    """The answer for a caller that no longer waits is not lost: `unclaimed` gets it."""
    given_back: list[str] = []

    async def give_back(answer: str) -> None:
        given_back.append(answer)

    async with Background("test") as background:
        server = Server()
        batcher = RequestBatcher(server.answer, background, size_max=10, unclaimed=give_back)
        impatient, patient = (background.spawn("ask", batcher.request(number)) for number in (1, 2))
        await asked(server, 1)
        impatient.cancel()
        server.may_answer.release()
        assert await patient == "2"
        await batcher.wait_until_idle()
        while not given_back:
            await turn()
    assert given_back == ["1"]


async def test_closing_leaves_nobody_waiting() -> None:
    """Holds for requests in progress, for waiting ones, and for later ones."""
    async with Background("test") as background:
        server = Server()
        batcher = RequestBatcher(server.answer, background, size_max=1)
        both = asyncio.gather(batcher.request(1), batcher.request(2), return_exceptions=True)
        await asked(server, 1)
        batcher.close()
        assert [type(outcome) for outcome in await both] == [Unavailable, Unavailable]
        with pytest.raises(Unavailable, match="closed"):
            await batcher.request(3)


async def test_who_waits_when_the_background_ends_is_cancelled() -> None:
    """Requests in progress and waiting ones are cancelled, because they would never be answered."""
    async with Background("test") as background:
        server = Server()
        async with Background("requests") as requests:
            batcher = RequestBatcher(server.answer, requests, size_max=1)
            both = [background.spawn("ask", batcher.request(number)) for number in (1, 2)]
            await asked(server, 1)
        await asyncio.wait(both)
        assert all(one.cancelled() for one in both)
        assert batcher.is_idle


async def test_who_asks_as_the_background_ends_is_cancelled_as_well() -> None:
    """Holds also when the sending task has not begun yet."""
    async with Background("test") as background, asyncio.timeout(60):
        server = Server()
        async with Background("requests") as requests:
            batcher = RequestBatcher(server.answer, requests, size_max=1)
            asking = background.spawn("ask", batcher.request(1))
            await turn()
        await asyncio.wait([asking])
        assert asking.cancelled()
        assert batcher.is_idle
        await batcher.wait_until_idle()


async def test_an_error_is_gone_with_who_hears_it() -> None:
    """Repeated refusals, such as of acknowledgements while an enode is down, leave no garbage."""
    async with Background("test") as background:
        server = Server()
        server.error = Unavailable("away")
        server.may_answer.release()
        batcher = RequestBatcher(server.answer, background, size_max=2)

        async def refused() -> weakref.ref[Unavailable] | None:
            try:
                await batcher.request(1)
            except Unavailable as error:
                return weakref.ref(error)
            return None

        gc.disable()
        try:
            error = await refused()
            server.error = None
            await batcher.wait_until_idle()
            await turn()
            assert error is not None
            assert error() is None
        finally:
            gc.enable()
