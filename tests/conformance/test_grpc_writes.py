"""Writing: windows that block, messages that are too large, and writes to calls that have ended.

In the last case grpc.aio behaves worst: a message that an ended call does not take makes the call INTERNAL.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import Any, NoReturn

import grpc
import pytest

from ortoo.common.process.background import Background
from tests.conformance.wire import (
    Wire,
    answering,
    conversing,
    failure,
    requesting,
    serving,
    turns,
    unary,
    until,
    waits,
)

EOF = grpc.aio.EOF
S = grpc.StatusCode
MESSAGE = b"x" * (128 << 10)
HUGE = bytes(32 << 20)
"""Larger than any window: writing it waits for a reader."""
LIMIT = 100


class Reader:
    """A handler that reads when it is told to, and counts messages."""

    def __init__(self) -> None:
        self.may_read = asyncio.Event()
        self.count = 0

    async def read_all(self, requests: Any, context: Any) -> bytes:
        await context.send_initial_metadata(())
        await self.may_read.wait()
        while await context.read() is not EOF:
            self.count += 1
        return b"%d" % self.count


class Writer:
    """Writes until the call refuses."""

    def __init__(self, call: Any) -> None:
        self.call = call
        self.count = 0

    async def write_on(self) -> NoReturn:
        while True:
            await self.call.write(MESSAGE)
            self.count += 1


async def stands_still(writer: Writer, task: "asyncio.Task[Any]") -> None:
    """Wait until the writer has written all that fits."""
    before = -1
    while writer.count != before:
        before = writer.count
        assert await waits(task)


async def blocked(background: Background, call: Any) -> "asyncio.Task[BaseException | None]":
    """A task that writes to the call and waits for a reader; its result is the error of the write."""

    async def write() -> BaseException | None:
        try:
            await call.write(HUGE)
        except BaseException as error:
            return error
        return None

    await call.wait_for_connection()
    task = background.spawn("write", write())
    assert await waits(task)
    return task


async def refusal(call: Any) -> str:
    """The error that a permanent writer gets when its call has ended."""
    try:
        await Writer(call).write_on()
    except grpc.aio.AioRpcError as error:
        return error.code().name
    except asyncio.InvalidStateError:
        return "finished"


REFUSALS = {"sockets": ("INTERNAL", "finished"), "h2": ("INTERNAL", "finished"), "memory": ("INTERNAL",)}
"""By transport.

On sockets it depends on whether the call ends during a write or between two; a blocked writer is in a write.
"""


async def test_a_full_window_blocks_the_writer(wire: Wire) -> None:
    """A caller is blocked while the handler does not read, and continues when the handler reads.

    The number of bytes that fit differs: on sockets the core grows the window with the line, in memory it is 64 KiB.
    """
    reader = Reader()
    async with serving(wire, Read=requesting(reader.read_all)) as served, Background("test") as background:
        call = served.requests("Read")
        writer = Writer(call)
        task = background.spawn("write", writer.write_on())
        await stands_still(writer, task)
        full = writer.count
        reader.may_read.set()
        await until(lambda: reader.count > 2 * full + 5)
        task.cancel()


async def test_a_full_window_blocks_the_handler(wire: Wire) -> None:
    """A handler is blocked while the caller does not read; nothing is lost when the caller resumes."""
    writers: list[Writer] = []

    async def writes(request: bytes, context: Any) -> None:
        writers.append(Writer(context))
        await writers[0].write_on()

    async with serving(wire, Writes=answering(writes)) as served, Background("test") as background:
        call = served.answers("Writes")
        await until(lambda: bool(writers))
        await stands_still(writers[0], background.spawn("nothing", _for_ever()))
        full = writers[0].count
        for _ in range(full + 5):
            assert await call.read() == MESSAGE
        await until(lambda: writers[0].count > full)
        call.cancel()


async def _for_ever() -> None:
    await asyncio.get_running_loop().create_future()


async def test_large_requests_reach_a_slow_reader(wire: Wire) -> None:
    """Windows open by exactly the bytes that were read, however the requests are cut into frames."""
    sizes = [300_000 + number * 1_001 for number in range(30)]

    async def slow(requests: AsyncIterator[bytes], context: Any) -> bytes:
        found: list[int] = []
        async for request in requests:
            found.append(len(request))
            await anext(turns())
        return repr(found).encode()

    async with asyncio.timeout(60), serving(wire, Slow=requesting(slow)) as served:
        call = served.requests("Slow")
        for size in sizes:
            await call.write(bytes(size))
        await call.done_writing()
        assert await call == repr(sizes).encode()


async def test_one_blocked_stream_does_not_block_another(wire: Wire) -> None:
    """Windows belong to calls: other calls on the same connection continue beside a blocked one."""
    reader = Reader()

    async def echo(request: bytes, context: Any) -> bytes:
        return request

    async with (
        serving(wire, Read=requesting(reader.read_all), Echo=unary(echo)) as served,
        Background("test") as background,
    ):
        writer = Writer(served.requests("Read"))
        task = background.spawn("write", writer.write_on())
        await stands_still(writer, task)
        assert await served.call("Echo", MESSAGE) == MESSAGE
        assert not task.done()


async def test_a_cancelled_writer_cancels_its_call(wire: Wire) -> None:
    """Cancelling a task that is blocked in a write ends its call with CANCELLED."""
    reader = Reader()
    async with serving(wire, Read=requesting(reader.read_all)) as served, Background("test") as background:
        call = served.requests("Read")
        task = await blocked(background, call)
        task.cancel()
        assert isinstance(await task, asyncio.CancelledError)
        assert await call.code() is S.CANCELLED


async def test_cancelling_a_call_under_a_blocked_writer(wire: Wire) -> None:
    """The writer gets CancelledError, but the call may be INTERNAL and not `cancelled()` from then on."""
    reader = Reader()
    async with serving(wire, Read=conversing(reader.read_all)) as served, Background("test") as background:
        call = served.both("Read")
        task = await blocked(background, call)
        assert call.cancel()
        assert isinstance(await task, asyncio.CancelledError)
        code = await call.code()
        assert code is S.INTERNAL or (wire.name != "memory" and code is S.CANCELLED)
        assert call.cancelled() is (code is S.CANCELLED)


async def test_a_deadline_under_a_blocked_writer(wire: Wire) -> None:
    """The writer never gets DEADLINE_EXCEEDED; INTERNAL may even stay the status of the call."""
    reader = Reader()
    async with serving(wire, Read=conversing(reader.read_all)) as served:
        call = served.both("Read", timeout=0.3)
        assert await refusal(call) in REFUSALS[wire.name]
        assert (await failure(call.read())).code() in (S.INTERNAL, S.DEADLINE_EXCEEDED)


async def test_an_end_under_a_blocked_writer(wire: Wire) -> None:
    """The writer never gets the status with which the server ended the call."""
    go_on = asyncio.Event()

    async def aborts(requests: Any, context: Any) -> None:
        await context.send_initial_metadata(())
        await go_on.wait()
        await context.abort(S.NOT_FOUND, "gone")

    async with serving(wire, Aborts=conversing(aborts)) as served, Background("test") as background:
        call = served.both("Aborts")
        task = background.spawn("write", refusal(call))
        await call.wait_for_connection()
        assert await waits(task)
        go_on.set()
        assert await task in REFUSALS[wire.name]
        assert await call.code() in (S.INTERNAL, S.NOT_FOUND)


async def test_a_write_after_the_end_with_unread_answers_loses_them(wire: Wire) -> None:
    """The status is not known yet, so the write is attempted and fails.

    The call becomes INTERNAL, and reads raise that.

    A caller that reads by iteration still gets the answers, and then the server's own status.
    """
    ended = asyncio.Event()

    async def one(requests: Any, context: Any) -> AsyncIterator[bytes]:
        context.add_done_callback(lambda _: ended.set())
        yield b"last words"

    async with serving(wire, One=conversing(one)) as served:
        for iterates in (False, True):
            ended.clear()
            call = served.both("One")
            await call.initial_metadata()
            await ended.wait()
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                while True:  # until the server's status has arrived
                    await call.write(b"")
            assert caught.value.code() is S.INTERNAL
            if iterates:
                assert [answer async for answer in call] == [b"last words"]
                assert await call.code() is S.OK
            else:
                assert (await failure(call.read())).code() is S.INTERNAL


async def test_a_write_after_the_end(wire: Wire) -> None:
    """Once the status is known, writes are refused by grpc.aio itself, and the status stays what it is."""

    async def aborts(requests: Any, context: Any) -> None:
        await context.abort(S.NOT_FOUND, "gone")

    async with serving(wire, Aborts=conversing(aborts)) as served:
        call = served.both("Aborts")
        assert await call.code() is S.NOT_FOUND
        with pytest.raises(asyncio.InvalidStateError, match="already finished"):
            await call.write(b"")
        await call.done_writing()
        assert (await failure(call.read())).details() == "gone"


async def test_a_write_after_done_writing(wire: Wire) -> None:
    """The write is refused, and the call stays open."""
    reader = Reader()
    reader.may_read.set()
    async with serving(wire, Read=requesting(reader.read_all)) as served:
        call = served.requests("Read")
        await call.write(b"")
        await call.done_writing()
        with pytest.raises(asyncio.InvalidStateError, match="half closed"):
            await call.write(b"")
        assert await call == b"1"


async def test_a_blocked_handler_whose_caller_goes_away(wire: Wire) -> None:
    """Its write fails or it is cancelled, whichever comes first; in memory the write fails."""
    writing = asyncio.Event()
    ended: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()

    async def writes(request: bytes, context: Any) -> None:
        writing.set()
        try:
            await context.write(HUGE)
        except BaseException as error:
            ended.set_result(error)
            raise

    async with serving(wire, Writes=answering(writes)) as served:
        call = served.answers("Writes")
        await writing.wait()
        call.cancel()
        error = await ended
        assert isinstance(error, grpc.aio.InternalError) or (
            wire.name != "memory" and isinstance(error, asyncio.CancelledError)
        )


class Sized:
    """Handlers that take and send messages of any size, and record how they end."""

    def __init__(self) -> None:
        self.ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def echo(self, request: bytes, context: Any) -> bytes:
        return request

    async def echo_all(self, requests: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
        how = "all read"
        try:
            async for request in requests:
                yield request
        except BaseException as error:
            how = type(error).__name__
            raise
        finally:
            self.ended.set_result(how)


@pytest.mark.parametrize(
    ("side", "verb", "option"),
    [
        ("SERVER", "Received", "grpc.max_receive_message_length"),
        ("SERVER", "Sent", "grpc.max_send_message_length"),
        ("CLIENT", "Received", "grpc.max_receive_message_length"),
        ("CLIENT", "Sent", "grpc.max_send_message_length"),
    ],
)
async def test_a_message_that_is_too_large(wire: Wire, side: str, verb: str, option: str) -> None:
    """At each of the four places a message of the limit passes; one byte more is RESOURCE_EXHAUSTED with both sizes."""
    limits = {side: ((option, LIMIT),)}
    sized = Sized()
    async with serving(
        wire,
        options=limits.get("SERVER", ()),
        channel_options=limits.get("CLIENT", ()),
        Echo=unary(sized.echo),
        Stream=conversing(sized.echo_all),
    ) as served:
        words = f"{side}: {verb} message larger than max ({LIMIT + 1} vs. {LIMIT})"
        assert len(await served.call("Echo", b"x" * LIMIT)) == LIMIT
        error = await failure(served.call("Echo", b"x" * (LIMIT + 1)))
        assert error.code() is S.RESOURCE_EXHAUSTED
        assert words in (error.details() or "")
        call = served.both("Stream")
        await call.write(b"x" * LIMIT)
        assert len(await call.read()) == LIMIT
        if (side, verb) == ("CLIENT", "Sent"):
            # The write fails with its own error; afterwards the status is known.
            assert (await failure(call.write(b"x" * (LIMIT + 1)))).code() is S.INTERNAL
            async for _ in turns():
                if await call.code() is S.RESOURCE_EXHAUSTED:
                    break
        else:
            await call.write(b"x" * (LIMIT + 1))
        error = await failure(call.read())
        assert error.code() is S.RESOURCE_EXHAUSTED
        assert words in (error.details() or "")
        assert await sized.ended in ("all read", "CancelledError", "GeneratorExit")


async def test_the_limit_that_nobody_set(wire: Wire) -> None:
    """Callers without options refuse answers of more than 4 MiB; sending is not limited."""

    async def gives(request: bytes, context: Any) -> bytes:
        return b"x" * int(request)

    async with serving(wire, Gives=unary(gives)) as served:
        assert len(await served.call("Gives", b"%d" % (4 << 20))) == 4 << 20
        error = await failure(served.call("Gives", b"%d" % ((4 << 20) + 1)))
        assert error.code() is S.RESOURCE_EXHAUSTED
        assert "(4194305 vs. 4194304)" in (error.details() or "")
