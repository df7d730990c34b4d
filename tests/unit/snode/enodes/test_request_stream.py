"""Requests over one call."""

import asyncio
import logging
import re
from typing import Any

import grpc
import pytest

from ortoo.common.errors import NOT_ACCEPTED_FIELD, Invalid, Overloaded, Unavailable
from ortoo.common.errors.status import error_of, failure_of
from ortoo.common.logs.rate_limit import LOG_INTERVAL_S
from ortoo.common.process.background import Background
from ortoo.snode.enodes.request_stream import RequestStream
from ortoo.v1 import enode_pb2
from ortoo.verification.time.virtual_clock import VirtualClock

Stream = RequestStream[enode_pb2.AppendRequest, enode_pb2.AppendResponse, int]


class FakeCall:
    """A bidirectional call whose far side is the test."""

    def __init__(self) -> None:
        self.written: asyncio.Queue[enode_pb2.AppendRequest] = asyncio.Queue()
        self.answers: asyncio.Queue[Any] = asyncio.Queue()
        self.cancelled = False
        self.status: grpc.StatusCode | None = None
        """The status with which the far side has ended it, if it has."""
        self.reached = True
        """Whether there is a far side."""

    async def wait_for_connection(self) -> None:
        """Reach the far side."""
        if not self.reached:
            raise grpc.aio.AioRpcError(grpc.StatusCode.UNAVAILABLE, grpc.aio.Metadata(), grpc.aio.Metadata(), "refused")

    async def write(self, request: enode_pb2.AppendRequest) -> None:
        """Take a request."""
        if self.status is not None:
            raise asyncio.InvalidStateError("RPC already finished.")
        await self.written.put(request)

    async def read(self) -> Any:
        """Return the answers of the test."""
        return await self.answers.get()

    async def code(self) -> grpc.StatusCode:
        """The status."""
        return self.status or grpc.StatusCode.UNAVAILABLE

    async def details(self) -> str:
        """The details."""
        return "gone"

    def cancel(self) -> None:
        """Cancel."""
        self.cancelled = True

    async def answer(self, offset: int) -> None:
        """Answer the oldest unanswered request."""
        request = await self.written.get()
        await self.answers.put(enode_pb2.AppendResponse(request_id=request.request_id, first_offset=offset))


def decode(answer: enode_pb2.AppendResponse) -> int:
    """The offset, or the error."""
    if answer.HasField("failure"):
        raise error_of(answer.failure)
    return answer.first_offset


class Far:
    """Calls as they are opened."""

    def __init__(self) -> None:
        self.calls: list[FakeCall] = []
        self.reached = True

    def open(self) -> FakeCall:
        """Another call."""
        self.calls.append(FakeCall())
        self.calls[-1].reached = self.reached
        return self.calls[-1]


def stream_to(far: Far, clock: VirtualClock, bytes_max: int = 100, *, answers_all_it_took: bool = False) -> Stream:
    """A stream with a limit of three seconds."""
    return Stream(
        "enode e",
        far.open,
        decode,
        clock=clock,
        timeout_s=3.0,
        in_flight_bytes_max=bytes_max,
        answers_all_accepted=answers_all_it_took,
    )


async def test_answers_find_their_requests() -> None:
    """Answers in another order, and errors, reach their callers; the call is opened once."""
    far, clock = Far(), VirtualClock()
    stream = stream_to(far, clock)
    async with asyncio.timeout(60), Background("test") as background:
        background.spawn("run", stream.run())
        futures = [stream.send(enode_pb2.AppendRequest()) for _ in range(3)]
        while not far.calls:
            await clock.sleep(0)
        call = far.calls[0]
        ids = [(await call.written.get()).request_id for _ in range(3)]
        refusal = failure_of(Invalid("no"))
        await call.answers.put(enode_pb2.AppendResponse(request_id=ids[2], first_offset=2))
        await call.answers.put(enode_pb2.AppendResponse(request_id=ids[1], failure=refusal))
        await call.answers.put(enode_pb2.AppendResponse(request_id=ids[0], first_offset=0))
        assert await futures[2] == 2
        with pytest.raises(Invalid):
            await futures[1]
        assert await futures[0] == 0
    assert len(far.calls) == 1
    assert call.cancelled


async def test_a_broken_call_fails_everything_at_once_and_the_next_request_opens_another() -> None:
    """Requests in flight become Unavailable and name the enode; later requests work."""
    far, clock = Far(), VirtualClock()
    stream = stream_to(far, clock)
    async with asyncio.timeout(60), Background("test") as background:
        background.spawn("run", stream.run())
        futures = [stream.send(enode_pb2.AppendRequest()) for _ in range(2)]
        while not far.calls:
            await clock.sleep(0)
        await far.calls[0].answers.put(grpc.aio.EOF)
        for future in futures:
            with pytest.raises(Unavailable, match="enode e"):
                await future
        later = stream.send(enode_pb2.AppendRequest())
        while len(far.calls) < 2:
            await clock.sleep(0)
        await far.calls[1].answer(9)
        assert await later == 9


@pytest.mark.parametrize("in_good_order", [True, False])
async def test_what_a_peer_has_not_taken_is_told_apart(in_good_order: bool) -> None:
    """G11: after a graceful end unanswered requests are not stored, after any other the outcome is unknown."""
    far, clock = Far(), VirtualClock()
    stream = stream_to(far, clock, answers_all_it_took=True)
    async with asyncio.timeout(60), Background("test") as background:
        background.spawn("run", stream.run())
        answered, unanswered = stream.send(enode_pb2.AppendRequest()), stream.send(enode_pb2.AppendRequest())
        while not far.calls:
            await clock.sleep(0)
        call = far.calls[0]
        while call.written.qsize() < 2:
            await clock.sleep(0)
        call.status = grpc.StatusCode.OK if in_good_order else grpc.StatusCode.CANCELLED
        late = stream.send(enode_pb2.AppendRequest())  # writing it fails, and the answer was not read yet
        for _ in range(5):
            await clock.sleep(0)
        await call.answer(7)
        await call.answers.put(grpc.aio.EOF)
        assert await answered == 7
        for future in (unanswered, late):
            with pytest.raises(Unavailable) as raised:
                await future
            assert (raised.value.field == NOT_ACCEPTED_FIELD) is in_good_order


async def test_what_was_meant_for_a_peer_that_is_not_there_was_never_sent() -> None:
    """G11: a refused connection leaves no ambiguous outcome."""
    far, clock = Far(), VirtualClock()
    far.reached = False
    stream = stream_to(far, clock)
    async with asyncio.timeout(60), Background("test") as background:
        background.spawn("run", stream.run())
        with pytest.raises(Unavailable) as raised:
            await stream.send(enode_pb2.AppendRequest())
        assert raised.value.field == NOT_ACCEPTED_FIELD


async def test_failures_are_logged_at_intervals_with_their_number(caplog: pytest.LogCaptureFixture) -> None:
    """Clients retry many times a second while an enode is down. The log does not grow with them."""
    far, clock = Far(), VirtualClock()
    far.reached = False
    stream = stream_to(far, clock)
    counts: list[int] = []
    async with asyncio.timeout(60), Background("test") as background:
        background.spawn("run", stream.run())
        for _ in range(41):
            with caplog.at_level(logging.WARNING), pytest.raises(Unavailable):
                await stream.send(enode_pb2.AppendRequest())
            clock.advance(LOG_INTERVAL_S / 20)
        counts = [int(count) for count in re.findall(r"enode_requests_failed.*count=(\d+)", caplog.text)]
    assert counts == [1, 20, 20]


async def test_silence_is_an_error_after_the_limit() -> None:
    """A frozen enode's requests fail within the limit and a little; a waiting read may take its own time (E-241)."""
    far, clock = Far(), VirtualClock()
    stream = stream_to(far, clock)
    async with asyncio.timeout(60), Background("test") as background:
        background.spawn("run", stream.run())
        patient = stream.send(enode_pb2.AppendRequest(), wait_s=60.0)
        while not clock.sleeping:
            await clock.sleep(0)
        for _ in range(100):
            clock.advance(0.5)
            await clock.sleep(0)
        assert not patient.done()
        silent = stream.send(enode_pb2.AppendRequest())
        began_s = clock.monotonic_s()
        while not silent.done():
            clock.advance(0.1)
            await clock.sleep(0)
        assert clock.monotonic_s() - began_s < 4.0
        with pytest.raises(Unavailable, match="3000 ms"):
            await silent
        with pytest.raises(Unavailable):
            await patient


async def test_bytes_in_flight_are_bounded() -> None:
    """E-248: beyond the bound a request is Overloaded at once, but a single one always goes."""
    far, clock = Far(), VirtualClock()
    stream = stream_to(far, clock)
    async with asyncio.timeout(60), Background("test") as background:
        background.spawn("run", stream.run())
        large = stream.send(enode_pb2.AppendRequest(), size_bytes=1000)
        with pytest.raises(Overloaded):
            stream.send(enode_pb2.AppendRequest(), size_bytes=1)
        while not far.calls:
            await clock.sleep(0)
        await far.calls[0].answer(0)
        assert await large == 0
        assert stream.send(enode_pb2.AppendRequest(), size_bytes=1)


async def test_a_late_request_fails_alone_while_the_peer_answers_others() -> None:
    """A deadline is for one request; the call breaks only if the peer is silent."""
    far, clock = Far(), VirtualClock()
    stream = stream_to(far, clock)
    async with asyncio.timeout(60), Background("test") as background:
        background.spawn("run", stream.run())
        late = stream.send(enode_pb2.AppendRequest())
        while not far.calls:
            await clock.sleep(0)
        call = far.calls[0]
        await call.written.get()
        for offset in range(8):
            other = stream.send(enode_pb2.AppendRequest())
            await call.answer(offset)
            assert await other == offset
            clock.advance(0.5)
            for _ in range(5):
                await clock.sleep(0)
        with pytest.raises(Unavailable, match="outcome is unknown"):
            await late
        assert len(far.calls) == 1
        assert not call.cancelled


async def idle_stream(far: Far, clock: VirtualClock, background: Background) -> Stream:
    """A running stream after its only request was answered and the timer of that request has ended."""
    stream = stream_to(far, clock)
    background.spawn("run", stream.run())
    first = stream.send(enode_pb2.AppendRequest())
    while not far.calls:
        await clock.sleep(0)
    await far.calls[0].answer(1)
    assert await first == 1
    clock.advance(3.0)  # the timer of the answered one
    for _ in range(10):
        await clock.sleep(0)
    return stream


async def test_an_idle_stream_wakes_nobody() -> None:
    """While no answer is due there is no timer; the next request still has its deadline."""
    far, clock = Far(), VirtualClock()
    async with asyncio.timeout(60), Background("test") as background:
        stream = await idle_stream(far, clock, background)
        assert not clock.sleeping
        silent = stream.send(enode_pb2.AppendRequest())
        while not clock.sleeping:
            await clock.sleep(0)
        clock.advance(3.1)
        with pytest.raises(Unavailable, match="3000 ms"):
            await silent


async def test_a_request_that_is_answered_at_once_breaks_nothing() -> None:
    """The answer is read before the watch over deadlines runs; the call stays open."""
    far, clock = Far(), VirtualClock()
    async with asyncio.timeout(60), Background("test") as background:
        stream = await idle_stream(far, clock, background)
        await far.calls[0].answers.put(enode_pb2.AppendResponse(request_id=2, first_offset=2))
        assert await stream.send(enode_pb2.AppendRequest()) == 2
        for _ in range(10):
            await clock.sleep(0)
        assert len(far.calls) == 1
        assert not far.calls[0].cancelled
