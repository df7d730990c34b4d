"""Successful calls of the four kinds: messages, metadata, iterators, reads and writes."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import grpc
import pytest

from tests.conformance.wire import (
    Wire,
    answering,
    conversing,
    requesting,
    serving,
    unary,
    until,
)

EOF = grpc.aio.EOF


async def echo(request: bytes, context: Any) -> bytes:
    return request


async def echo_all(requests: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
    async for request in requests:
        yield request


async def joined(requests: AsyncIterator[bytes], context: Any) -> bytes:
    return b"+".join([request async for request in requests])


async def three(request: bytes, context: Any) -> AsyncIterator[bytes]:
    for number in range(3):
        yield request + b"%d" % number


async def test_one_request_one_answer(wire: Wire) -> None:
    """The answer comes, then the status is OK without details; an empty message is a message."""
    async with serving(wire, Echo=unary(echo)) as served:
        call = served.call("Echo", b"hello")
        assert await call == b"hello"
        assert await call == b"hello", "an answer may be awaited again"
        assert (await call.code(), await call.details()) == (grpc.StatusCode.OK, "")
        assert (call.done(), call.cancelled()) == (True, False)
        assert await served.call("Echo", b"") == b""


async def test_many_answers_are_iterated(wire: Wire) -> None:
    """They come in order, and the iterator ends with the status OK."""
    async with serving(wire, Three=answering(three)) as served:
        call = served.answers("Three", b"n")
        assert [answer async for answer in call] == [b"n0", b"n1", b"n2"]
        assert await call.code() is grpc.StatusCode.OK


async def test_many_answers_are_read(wire: Wire) -> None:
    """The end is EOF, and EOF again after it."""
    async with serving(wire, Three=answering(three)) as served:
        call = served.answers("Three")
        assert [await call.read() for _ in range(3)] == [b"0", b"1", b"2"]
        assert [await call.read() for _ in range(2)] == [EOF, EOF]
        assert call.done()


async def test_the_status_is_known_when_the_answers_are_read(wire: Wire) -> None:
    """While an answer is unread, the status is unknown to the caller, even if the server ended the call long ago."""
    ended = asyncio.Event()

    async def two(request: bytes, context: Any) -> None:
        context.add_done_callback(lambda _: ended.set())
        await context.write(b"1")
        await context.write(b"2")

    async with serving(wire, Two=answering(two)) as served:
        call = served.answers("Two")
        await ended.wait()
        assert await call.read() == b"1"
        assert not call.done()
        assert await call.read() == b"2"
        await until(call.done)


async def test_a_handler_may_write_instead_of_yielding(wire: Wire) -> None:
    """Handlers of streams may be coroutines that write to the context, or generators."""

    async def writes(requests: Any, context: Any) -> None:
        while (request := await context.read()) is not EOF:
            await context.write(request * 2)
        await context.write(b"end")

    async with serving(wire, Writes=conversing(writes)) as served:
        call = served.both("Writes", iter([b"a", b"b"]))
        assert [answer async for answer in call] == [b"aa", b"bb", b"end"]


async def test_requests_come_from_iterators_of_both_kinds(wire: Wire) -> None:
    """Plain and asynchronous iterators are read to their end, which half-closes the call."""

    async def numbers() -> AsyncIterator[bytes]:
        for number in range(3):
            yield b"%d" % number

    async with serving(wire, Joined=requesting(joined), Echo=conversing(echo_all)) as served:
        assert await served.requests("Joined", numbers()) == b"0+1+2"
        assert await served.requests("Joined", iter([b"a", b"b"])) == b"a+b"
        assert await served.requests("Joined", iter([])) == b""
        assert [answer async for answer in served.both("Echo", numbers())] == [b"0", b"1", b"2"]


async def test_requests_are_written_one_by_one(wire: Wire) -> None:
    """Each answer arrives before the next request is written; `done_writing` ends the requests and may be repeated."""
    async with serving(wire, Joined=requesting(joined), Echo=conversing(echo_all)) as served:
        call = served.both("Echo")
        for number in range(5):
            await call.write(b"%d" % number)
            assert await call.read() == b"%d" % number
        await call.done_writing()
        await call.done_writing()
        assert await call.read() is EOF
        one = served.requests("Joined")
        await one.write(b"x")
        await one.write(b"y")
        await one.done_writing()
        assert await one == b"x+y"


async def test_answers_go_on_after_the_requests_have_ended(wire: Wire) -> None:
    """A half-closed call stays open in the other direction until the server ends it."""
    go_on = asyncio.Event()

    async def late(requests: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
        count = len([request async for request in requests])
        await go_on.wait()
        for number in range(count):
            yield b"%d" % number

    async with serving(wire, Late=conversing(late)) as served:
        call = served.both("Late", iter([b"a", b"b"]))
        go_on.set()
        assert [answer async for answer in call] == [b"0", b"1"]


async def test_iterators_and_reads_do_not_mix(wire: Wire) -> None:
    """A call whose answers are iterated cannot be read; one whose requests are iterated cannot be written to."""
    async with serving(wire, Echo=conversing(echo_all), Three=answering(three)) as served:
        iterated = served.answers("Three")
        async for _ in iterated:
            break
        with pytest.raises(grpc.aio.UsageError):
            await iterated.read()
        given = served.both("Echo", iter([b"a"]))
        with pytest.raises(grpc.aio.UsageError):
            await given.write(b"b")
        with pytest.raises(grpc.aio.UsageError):
            await given.done_writing()
        read = served.answers("Three")
        assert await read.read() == b"0"
        with pytest.raises(grpc.aio.UsageError):
            aiter(read)


async def test_an_iterator_goes_on_where_it_was_left(wire: Wire) -> None:
    """Leaving a loop over the answers does not end the call: the next loop gets the next answer."""
    async with serving(wire, Three=answering(three)) as served:
        call = served.answers("Three")
        async for answer in call:
            assert answer == b"0"
            break
        assert [answer async for answer in call] == [b"1", b"2"]


async def test_large_and_many_messages(wire: Wire) -> None:
    """Messages of 3 MiB arrive whole, and thousands of small ones in order."""
    async with serving(wire, Echo=conversing(echo_all)) as served:
        call = served.both("Echo")
        for size in (0, 1, 1 << 16, 3 << 20):
            await call.write(b"x" * size)
            assert len(await call.read()) == size
        await call.done_writing()
        assert await call.read() is EOF

        def many() -> Iterator[bytes]:
            for number in range(1_500):
                yield b"%d" % number

        assert [int(answer) async for answer in served.both("Echo", many())] == list(range(1_500))


async def test_connected_means_that_requests_can_be_written(wire: Wire) -> None:
    """For a stream `wait_for_connection` returns before any answer; for a unary call it returns with the answer."""
    go_on = asyncio.Event()

    async def silent(requests: Any, context: Any) -> AsyncIterator[bytes]:
        await go_on.wait()
        yield b"now"

    async with serving(wire, Silent=conversing(silent), Echo=unary(echo)) as served:
        call = served.both("Silent")
        await call.wait_for_connection()
        await call.write(b"into the silence")
        go_on.set()
        assert await call.read() == b"now"
        one = served.call("Echo", b"x")
        await one.wait_for_connection()
        assert one.done()
