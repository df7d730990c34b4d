"""Calls that either side cancels, that reach their deadline, or that are left by their iterators."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest

from ortoo.common.process.background import Background
from tests.conformance.wire import (
    KINDS,
    Wire,
    answering,
    begun,
    conversing,
    failure,
    requesting,
    result_of,
    serving,
    unary,
    until,
)

EOF = grpc.aio.EOF
S = grpc.StatusCode
DEADLINE_S = 0.15
BEGUN_WITHIN_S = 3.0
"""A handler must have started within this time on a busy machine: a call that ends earlier never reaches it."""


class Waiting:
    """Handlers of all four kinds that wait forever and record how they end."""

    def __init__(self) -> None:
        self.called = asyncio.Event()
        self.ended: asyncio.Future[BaseException | None] = asyncio.get_running_loop().create_future()
        self.context: Any = None
        self.told: list[tuple[bool, bool]] = []

    async def one(self, request: Any, context: Any) -> bytes:
        self.context = context
        context.add_done_callback(lambda got: self.told.append((got.done(), got.cancelled())))
        self.called.set()
        try:
            await asyncio.get_running_loop().create_future()
        except BaseException as error:
            self.ended.set_result(error)
            raise
        return b"never"

    async def many(self, request: Any, context: Any) -> AsyncIterator[bytes]:
        yield await self.one(request, context)

    def handlers(self) -> dict[str, Any]:
        """Handlers by the names of the four kinds of calls."""
        return {
            "call": unary(self.one),
            "answers": answering(self.many),
            "requests": requesting(self.one),
            "both": conversing(self.many),
        }


@pytest.mark.parametrize("kind", KINDS)
async def test_cancelled_by_the_caller(wire: Wire, kind: str) -> None:
    """The call ends at once with CANCELLED and a CancelledError; the handler is cancelled.

    At a server of grpc.aio `context.cancelled()` stays false, so the handler sees only the CancelledError. No code is
    set.
    """
    waiting = Waiting()
    async with serving(wire, **waiting.handlers()) as served:
        call = begun(served, kind)
        told: list[bool] = []
        call.add_done_callback(lambda got: told.append(got.cancelled()))
        await waiting.called.wait()
        assert (call.cancel(), call.cancel()) == (True, False)
        assert (call.done(), call.cancelled(), told) == (True, True, [True])
        assert (await call.code(), await call.details()) == (S.CANCELLED, "Locally cancelled by application!")
        assert len(await call.trailing_metadata()) == 0
        with pytest.raises(asyncio.CancelledError):
            await result_of(call, kind)
        if kind in ("requests", "both"):
            with pytest.raises(asyncio.InvalidStateError):
                await call.write(b"")
            await call.done_writing()
        assert isinstance(await waiting.ended, asyncio.CancelledError)
        await until(lambda: bool(waiting.told))
        assert waiting.told == [(True, True) if wire.name == "h2" else (False, False)]
        assert waiting.context.code() is None


@pytest.mark.parametrize("kind", KINDS)
async def test_cancelled_with_the_task_that_waits(wire: Wire, kind: str) -> None:
    """Cancelling the task that waits for an answer cancels the call."""
    waiting = Waiting()
    async with serving(wire, **waiting.handlers()) as served, Background("test") as background:
        call = begun(served, kind)
        task = background.spawn("wait", result_of(call, kind))
        await waiting.called.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await call.code() is S.CANCELLED
        assert isinstance(await waiting.ended, asyncio.CancelledError)


@pytest.mark.parametrize("kind", KINDS)
async def test_the_deadline(wire: Wire, kind: str) -> None:
    """It applies at both ends: the caller gets DEADLINE_EXCEEDED, and the handler is cancelled."""
    waiting = Waiting()
    async with serving(wire, **waiting.handlers()) as served:
        call = begun(served, kind, timeout=BEGUN_WITHIN_S)
        error = await failure(result_of(call, kind))
        assert (error.code(), call.cancelled(), call.time_remaining()) == (S.DEADLINE_EXCEEDED, False, 0)
        assert "Deadline Exceeded" in (error.details() or "")
        assert isinstance(await waiting.ended, asyncio.CancelledError)
        if kind in ("requests", "both"):
            with pytest.raises(asyncio.InvalidStateError):
                await call.write(b"")


async def test_unread_answers_do_not_stop_the_deadline(wire: Wire) -> None:
    """A call that the server ended in time still fails at the deadline if its answers are not read by then."""

    async def two(request: bytes, context: Any) -> AsyncIterator[bytes]:
        yield b"1"
        yield b"2"

    async with serving(wire, Two=answering(two)) as served:
        call = served.answers("Two", timeout=BEGUN_WITHIN_S)
        assert await call.read() == b"1"
        assert await call.code() is S.DEADLINE_EXCEEDED
        assert (await failure(call.read())).code() is S.DEADLINE_EXCEEDED


@pytest.mark.parametrize("kind", KINDS)
async def test_a_handler_that_cancels_itself_says_nothing(wire: Wire, kind: str) -> None:
    """Its caller waits until the deadline: grpc.aio takes the CancelledError for its own and sends no status.

    The transport h2 sends CANCELLED. The product cancels tasks of handlers, and therefore converts the error into a
    status there.
    """

    async def one(request: Any, context: Any) -> bytes:
        raise asyncio.CancelledError

    async def many(request: Any, context: Any) -> AsyncIterator[bytes]:
        yield await one(request, context)

    handlers = {"call": unary(one), "answers": answering(many), "requests": requesting(one), "both": conversing(many)}
    async with serving(wire, **handlers) as served:
        expected, timeout_s = (S.CANCELLED, 60) if wire.name == "h2" else (S.DEADLINE_EXCEEDED, DEADLINE_S)
        call = begun(served, kind, timeout=timeout_s)
        assert (await failure(result_of(call, kind))).code() is expected


async def test_readers_of_a_cancelled_call_see_its_requests_end(wire: Wire) -> None:
    """A reading handler sees EOF first and its cancellation afterwards.

    A cancelled stream and a half-closed one therefore look alike to the reader, until it awaits something else.
    """
    seen: list[object] = []
    reading, ended = asyncio.Event(), asyncio.Event()

    async def reads(requests: Any, context: Any) -> bytes:
        seen.append(await context.read())
        reading.set()
        try:
            seen.append(await context.read())
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise
        finally:
            ended.set()
        return b""

    async with serving(wire, Reads=requesting(reads)) as served:
        call = served.requests("Reads")
        await call.write(b"1")
        await reading.wait()
        call.cancel()
        await ended.wait()
        assert seen == [b"1", EOF, "cancelled"]


async def test_unread_requests_of_a_cancelled_call_are_lost(wire: Wire) -> None:
    """A handler that ignores its cancellation reads EOF at once and can neither write nor abort."""
    arrived, ended = asyncio.Event(), asyncio.Event()
    seen: list[object] = []

    async def stubborn(requests: Any, context: Any) -> None:
        try:
            arrived.set()
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            seen.extend([await context.read(), await context.read()])
            with pytest.raises(grpc.aio.InternalError):
                await context.write(b"")
            with pytest.raises(grpc.aio.InternalError):
                await context.abort(S.ABORTED, "")
            ended.set()

    async with serving(wire, Stubborn=conversing(stubborn)) as served:
        call = served.both("Stubborn")
        await call.write(b"1")
        await call.write(b"2")
        await arrived.wait()
        call.cancel()
        await ended.wait()
        assert seen == [EOF, EOF]


async def test_a_request_iterator_that_raises_cancels_the_call(wire: Wire) -> None:
    """Only grpc's log shows the error: the caller gets CancelledError, and the handler is cancelled."""
    waiting = Waiting()

    async def broken() -> AsyncIterator[bytes]:
        yield b"1"
        await waiting.called.wait()
        raise ValueError("mine")

    async with serving(wire, **waiting.handlers()) as served:
        call = served.requests("requests", broken())
        with pytest.raises(asyncio.CancelledError):
            await call
        assert await call.code() is S.CANCELLED
        assert isinstance(await waiting.ended, asyncio.CancelledError)


async def test_a_request_iterator_is_left_when_the_call_ends(wire: Wire) -> None:
    """A server that answers early ends the iteration of requests at any point."""

    async def early(requests: Any, context: Any) -> Any:
        return await context.read()

    left = asyncio.Event()

    async def endless() -> AsyncIterator[bytes]:
        try:
            while True:
                yield b"x" * 1_000
        finally:
            left.set()

    async with serving(wire, Early=requesting(early)) as served:
        assert await served.requests("Early", endless()) == b"x" * 1_000
        await left.wait()


async def test_a_generator_of_answers_closed_early(wire: Wire) -> None:
    """Closing the iterator of answers does not end the call. Cancelling does, and also ends the server's generator."""
    ended = asyncio.Event()

    async def endless(request: bytes, context: Any) -> AsyncIterator[bytes]:
        try:
            while True:
                yield b"x"
        finally:
            ended.set()

    async with serving(wire, Endless=answering(endless)) as served:
        call = served.answers("Endless")
        answers = aiter(call)
        assert await anext(answers) == b"x"
        await answers.aclose()
        assert not call.done()
        assert call.cancel()
        await ended.wait()


async def test_a_cancellation_is_lost_while_a_stream_fails(wire: Wire) -> None:
    """A task cancelled in its first read, at the moment its call fails, gets the failure and not CancelledError.

    grpc.aio swallows the cancellation while it prepares the call. `ortoo.common.errors.status.rpc_errors` checks
    whether the task was cancelled; without that, loops that retry after failures would never end.
    """

    async def refuses(requests: Any, context: Any) -> AsyncIterator[bytes]:
        await context.abort(S.UNAVAILABLE, "no")
        yield b""

    async with serving(wire, Refuses=conversing(refuses)) as served, Background("test") as background:
        call = served.both("Refuses")
        told: list[bool] = []

        async def read() -> str:
            try:
                await call.read()
            except grpc.aio.AioRpcError as error:
                task = asyncio.current_task()
                assert task is not None
                told.append(task.cancelling() > 0)
                return error.code().name
            return "nothing"

        task = background.spawn("read", read())
        # The status is known, and the task that prepares the call has not run since: this is the moment.
        call.add_done_callback(lambda _: task.cancel())
        assert await task == "UNAVAILABLE"
        assert told == [True]


async def test_a_cancelled_read_of_the_server_takes_a_message_along(wire: Wire) -> None:
    """A handler that abandons a read reads EOF from then on, though the caller continues to send.

    A server must therefore not read with a timeout: it leaves the read to a task and waits for the task. The transport
    h2 loses nothing.
    """
    is_lost = wire.name != "h2"
    seen: list[object] = []
    written = asyncio.Event()

    async def impatient(requests: Any, context: Any) -> AsyncIterator[bytes]:
        await context.send_initial_metadata(())
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(context.read(), 0.05)
        if is_lost:
            seen.append(await context.read())
        yield b"now"
        await written.wait()
        if not is_lost:
            seen.append(await context.read())

    async with serving(wire, Impatient=conversing(impatient)) as served:
        call = served.both("Impatient")
        assert await call.read() == b"now"
        await call.write(b"1")
        written.set()
        assert await call.read() is EOF
        assert seen == [EOF if is_lost else b"1"]
