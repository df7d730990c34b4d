"""However a handler ends, its message is settled; only the cancellation of the consumer is a stop."""

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ortoo.client.handling.calls import HandlerCalls
from ortoo.common.process.background import Background
from ortoo.verification.time.virtual_time import in_virtual_time, running_clock
from tests.unit.client.handling.endings import FAILURES

SECONDS = st.sampled_from([0.0, 1.0, 2.0, 3.0])


class Consumer:
    """Handles messages one by one, and records their outcome."""

    def __init__(self, endings: list[tuple[float, str]]) -> None:
        """Each message is handled for a time and then ends in one of the ways; "" = it returns."""
        self.endings = endings
        self.begun: list[int] = []
        self.settled: list[tuple[int, bool]] = []
        """Message, and whether its handler failed."""

    async def handle(self, message: int) -> None:
        """The handler of the application."""
        self.begun.append(message)
        seconds, ending = self.endings[message]
        if seconds:
            await running_clock().sleep(seconds)
        if ending:
            await FAILURES[ending]()

    async def run(self) -> None:
        """Consume."""
        calls: HandlerCalls[int, None] = HandlerCalls(self.handle, threads=1)
        for message in range(len(self.endings)):
            async with calls.ended(message) as end:
                await running_clock().sleep(0.1)  # as a request to the server
                self.settled.append((message, end.failure is not None))


@given(
    st.lists(st.tuples(SECONDS, st.sampled_from(["", *FAILURES])), max_size=6), st.one_of(st.none(), st.floats(0.05, 9))
)
def test_every_end_settles_its_message_and_only_the_consumers_own_cancellation_is_a_stop(
    endings: list[tuple[float, str]], stopped_after_s: float | None
) -> None:
    """In order, each message once; after a stop at most the last one is unsettled, and no other is begun."""

    @in_virtual_time
    async def run() -> None:
        consumer = Consumer(endings)
        async with Background("test") as background:
            running = background.spawn("consume", consumer.run())
            await asyncio.wait([running], timeout=stopped_after_s)
            is_stopped = not running.done()
            running.cancel()
            await asyncio.wait([running])
        assert running.cancelled() == is_stopped
        expected = [(message, bool(endings[message][1])) for message in consumer.begun]
        assert consumer.settled == expected or (is_stopped and consumer.settled == expected[:-1])
        if not is_stopped:
            assert len(consumer.settled) == len(endings)

    run()


async def test_a_handler_that_returns_in_the_turn_of_the_stop_is_settled_as_processed() -> None:
    """Its task has ended, but the consumer has not seen that yet when the cancellation arrives."""
    settled: list[bool] = []
    begun, may_return = asyncio.Event(), asyncio.Event()

    async def handle(_: str) -> None:
        begun.set()
        await may_return.wait()

    async def consume() -> None:
        async with HandlerCalls[str, None](handle, threads=1).ended("m") as end:
            settled.append(end.failure is not None)

    async with Background("test") as background:
        consuming = background.spawn("consume", consume())
        await begun.wait()
        may_return.set()
        asyncio.get_running_loop().call_soon(consuming.cancel)  # runs in the turn in which the handler's task ends
        await asyncio.wait([consuming])
    assert settled == [False]
    assert consuming.cancelled()


@in_virtual_time
async def test_a_handler_that_returns_after_the_stop_is_settled_as_processed() -> None:
    """Its work is done, so the message must not come again; the stop is raised after that."""
    settled: list[bool] = []
    begun = asyncio.Event()

    async def handle(_: str) -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await running_clock().sleep(1)  # finishes its work

    async def consume() -> None:
        calls: HandlerCalls[str, None] = HandlerCalls(handle, threads=1)
        async with calls.ended("message") as end:
            await running_clock().sleep(1)
            settled.append(end.failure is None)

    async with Background("test") as background:
        running = background.spawn("consume", consume())
        await begun.wait()
        running.cancel()
        await asyncio.wait([running])
    assert (settled, running.cancelled()) == ([True], True)


@in_virtual_time
async def test_a_failure_after_the_stop_counts_no_attempt() -> None:
    """The stop caused it, not the message."""
    settled: list[Any] = []
    begun = asyncio.Event()

    async def handle(_: str) -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise ConnectionError("closed") from None

    async def consume() -> None:
        calls: HandlerCalls[str, None] = HandlerCalls(handle, threads=1)
        async with calls.ended("message") as end:
            settled.append(end)

    async with Background("test") as background:
        running = background.spawn("consume", consume())
        await begun.wait()
        running.cancel()
        await asyncio.wait([running])
    assert (settled, running.cancelled()) == ([], True)


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_an_end_of_the_program_settles_the_message_first(error: type[BaseException]) -> None:
    """The failed attempt is counted, so that a message cannot end the program for ever; then the program ends."""
    settled: list[BaseException | None] = []

    async def handle(_: str) -> None:
        raise error

    async def consume() -> None:
        calls: HandlerCalls[str, None] = HandlerCalls(handle, threads=1)
        async with calls.ended("message") as end:
            settled.append(end.failure)

    with pytest.raises(error):
        asyncio.run(consume())
    assert [type(failure) for failure in settled] == [error]
