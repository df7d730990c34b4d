"""Other ends of calls: cancelled by either side, at a deadline, aborted, with an error, or never."""

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
    waits,
)

DEADLINE_S = 0.15
EOF = grpc.aio.EOF
S = grpc.StatusCode


@pytest.mark.parametrize("kind", KINDS)
async def test_aborted(wire: Wire, kind: str) -> None:
    """Code, details and metadata of the abort arrive; later actions of the handler have no effect."""
    metadata = (("reason", "first"), ("reason", "second"), ("failure-bin", b"\0\1"))
    after: list[str] = []

    async def one(request: Any, context: Any) -> bytes:
        with pytest.raises(grpc.aio.AbortError):
            await context.abort(S.FAILED_PRECONDITION, "not now", metadata)
        with pytest.raises(grpc.aio.UsageError):
            await context.abort(S.INTERNAL, "again")
        with pytest.raises(grpc.aio.AbortError):
            await context.write(b"too late")
        with pytest.raises(grpc.aio.AbortError):
            await context.read()
        after.append(context.details())
        return b"too late"

    async def many(request: Any, context: Any) -> AsyncIterator[bytes]:
        yield await one(request, context)

    handlers = {"call": unary(one), "answers": answering(many), "requests": requesting(one), "both": conversing(many)}
    async with serving(wire, **handlers) as served:
        call = begun(served, kind)
        error = await failure(result_of(call, kind))
        assert (error.code(), error.details()) == (S.FAILED_PRECONDITION, "not now")
        assert tuple(error.trailing_metadata() or ()) == metadata
        assert error.debug_error_string() == "FAILED_PRECONDITION:not now"
        assert (await call.code(), await call.details()) == (S.FAILED_PRECONDITION, "not now")
        assert tuple(await call.trailing_metadata()) == metadata
        await until(lambda: after == ["not now"])


async def test_aborted_after_answers(wire: Wire) -> None:
    """Answers sent before the abort are read first, by reads and by iteration; then each read raises the abort."""

    async def two(request: bytes, context: Any) -> AsyncIterator[bytes]:
        yield b"1"
        yield b"2"
        await context.abort(S.ABORTED, "enough")

    async with serving(wire, Two=answering(two)) as served:
        call = served.answers("Two")
        assert [await call.read(), await call.read()] == [b"1", b"2"]
        for _ in range(2):
            assert (await failure(call.read())).details() == "enough"
        answers = aiter(served.answers("Two"))
        assert [await anext(answers), await anext(answers)] == [b"1", b"2"]
        assert (await failure(anext(answers))).details() == "enough"


async def test_a_status_set_by_hand(wire: Wire) -> None:
    """A call whose handler sets a code and returns fails with it.

    Its answer is dropped, metadata and details arrive.
    """

    async def sets(request: bytes, context: Any) -> bytes:
        context.set_code(S.OUT_OF_RANGE)
        context.set_details("beyond")
        context.set_trailing_metadata((("k", "v"),))
        assert (context.code(), context.details()) == (S.OUT_OF_RANGE, "beyond")
        return b"dropped"

    async with serving(wire, Sets=unary(sets)) as served:
        error = await failure(served.call("Sets"))
        assert (error.code(), error.details()) == (S.OUT_OF_RANGE, "beyond")
        assert tuple(error.trailing_metadata() or ()) == (("k", "v"),)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_handler_that_raises(wire: Wire, kind: str) -> None:
    """The caller gets UNKNOWN with the error's type and message."""

    async def one(request: Any, context: Any) -> bytes:
        raise ValueError("a defect")

    async def many(request: Any, context: Any) -> AsyncIterator[bytes]:
        yield await one(request, context)

    handlers = {"call": unary(one), "answers": answering(many), "requests": requesting(one), "both": conversing(many)}
    async with serving(wire, **handlers) as served:
        error = await failure(result_of(begun(served, kind), kind))
        assert (error.code(), error.details()) == (S.UNKNOWN, "Unexpected <class 'ValueError'>: a defect")


async def test_a_handler_that_raises_after_it_set_a_code(wire: Wire) -> None:
    """The caller gets the code that was set, with the message of the error."""

    async def sets(request: bytes, context: Any) -> bytes:
        context.set_code(S.DATA_LOSS)
        raise ValueError("torn")

    async with serving(wire, Sets=unary(sets)) as served:
        error = await failure(served.call("Sets"))
        assert error.code() is S.DATA_LOSS
        assert "torn" in (error.details() or "")


async def test_an_abort_with_ok_says_nothing(wire: Wire) -> None:
    """It is a bug of the handler that only the server's log shows; the caller waits until the deadline.

    The transport h2 answers with UNKNOWN.
    """

    async def aborts(request: bytes, context: Any) -> None:
        await context.abort(S.OK, "fine")

    async with serving(wire, Aborts=unary(aborts)) as served:
        code = (await failure(served.call("Aborts", timeout=DEADLINE_S))).code()
        assert code is (S.UNKNOWN if wire.name == "h2" else S.DEADLINE_EXCEEDED)


async def test_writes_of_the_server_after_its_status(wire: Wire) -> None:
    """A write by a handler's task after the handler has ended is refused as misuse."""
    late: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async with Background("test") as background:

        async def leaves_a_task(requests: Any, context: Any) -> None:
            async def later() -> None:
                await late
                with pytest.raises(grpc.aio.UsageError):
                    await context.write(b"2")
                with pytest.raises(grpc.aio.UsageError):
                    await context.read()
                with pytest.raises(grpc.aio.InternalError):
                    await context.abort(S.ABORTED, "")

            background.spawn("later", later()).set_name("later")
            await context.write(b"1")

        async with serving(wire, Leaves=conversing(leaves_a_task)) as served:
            call = served.both("Leaves")
            assert [answer async for answer in call] == [b"1"]
            late.set_result(None)
            [task] = [task for task in asyncio.all_tasks() if task.get_name() == "later"]
            await task


async def test_a_second_read_beside_one_that_waits(wire: Wire) -> None:
    """The second read returns EOF too early: the core refuses a parallel read, and grpc.aio turns that into EOF."""
    go_on = asyncio.Event()

    async def late(requests: Any, context: Any) -> AsyncIterator[bytes]:
        await context.send_initial_metadata(())
        await go_on.wait()
        yield b"1"

    async with serving(wire, Late=conversing(late)) as served, Background("test") as background:
        call = served.both("Late")
        await call.initial_metadata()
        first = background.spawn("first", call.read())
        assert await waits(first)
        second = background.spawn("second", call.read())
        assert await waits(second), "it waits for the status of an open call"
        go_on.set()
        assert await first == b"1"
        assert await second is EOF
