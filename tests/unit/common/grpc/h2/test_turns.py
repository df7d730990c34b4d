"""Connections that begin many calls are read in turns."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc
import pytest
import uvloop

from ortoo.common.grpc.h2.server import H2Server
from ortoo.common.grpc.h2.shared.endpoint import READ_BYTES
from ortoo.common.grpc.h2.shared.turns import CALLS_OF_TURN, FRAMES_OF_CALL, READ_BYTES_MIN, Turn
from ortoo.common.grpc.layers.error_translation import ErrorTranslation
from ortoo.common.grpc.layers.layer import Layers
from ortoo.common.process.clock import SystemClock
from tests.hostile.http2 import DATA, HEADERS, Stranger, frame, headers, message, opening, request

PATH, MANY = "/test.Turns/One", "/test.Turns/Many"
CONNECTIONS, CALLS = 8, 900
MESSAGES = 12_000
"""Empty messages that a stream may send before its window is opened again."""
CALL_BYTES_MIN = 90
"""The size of the frames of one call, at least."""
CALLS_OF_READ = READ_BYTES_MIN // CALL_BYTES_MIN
"""The calls of a first read, at most."""


class Counting(H2Server):
    """A server that counts the calls that begin, and the messages that arrive, in each iteration of the event loop."""

    def __init__(self) -> None:
        super().__init__([Layers([ErrorTranslation()])])
        self.of_iterations = [0]
        self.messages_of_iterations = [0]

    def find_method(self, path: str) -> Any:
        self.of_iterations[-1] += 1
        return super().find_method(path)

    def count(self) -> None:
        """Begin to count the next iteration."""
        if self.of_iterations[-1]:
            self.of_iterations.append(0)
        if self.messages_of_iterations[-1]:
            self.messages_of_iterations.append(0)
        self.counting = asyncio.get_running_loop().call_soon(self.count)


@contextlib.asynccontextmanager
async def serving() -> AsyncIterator[tuple[Counting, str]]:
    """A server, and its address."""

    async def one(request: bytes, context: Any) -> bytes:
        return request

    async def many(requests: AsyncIterator[bytes], context: Any) -> bytes:
        async for _ in requests:
            server.messages_of_iterations[-1] += 1
        return b""

    server = Counting()
    handlers: dict[str, Any] = {
        "One": grpc.unary_unary_rpc_method_handler(one),
        "Many": grpc.stream_unary_rpc_method_handler(many),
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("test.Turns", handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    server.count()
    try:
        yield server, f"127.0.0.1:{port}"
    finally:
        server.counting.cancel()
        await server.stop(None)


async def flood(address: str) -> list[Stranger]:
    """Connections that each begin many calls at once, without a request."""
    strangers = [await Stranger.connect(address) for _ in range(CONNECTIONS)]
    for stranger in strangers:
        await stranger.send(*(opening(stream, headers(PATH)) for stream in stranger.streams(CALLS)))
    return strangers


async def until(is_true: Callable[[], bool]) -> None:
    """Wait for a condition, in each iteration of the loop."""
    async with asyncio.timeout(60):
        while not is_true():
            await SystemClock().sleep(0)


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_one_iteration_of_the_loop_begins_few_calls(new_loop: Any) -> None:
    """Otherwise one connection that begins thousands of calls in one read would stop the process for that time."""

    async def run() -> None:
        async with serving() as (server, address):
            strangers = await flood(address)
            await until(lambda: sum(server.of_iterations) == CONNECTIONS * CALLS)
            for stranger in strangers:
                await stranger.close()
            # The first reads of all connections may come together.
            assert max(server.of_iterations) <= CONNECTIONS * CALLS_OF_READ
            later = server.of_iterations[len(server.of_iterations) // 2 :]
            assert max(later) <= 2 * CALLS_OF_TURN

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(run())


async def test_a_connection_with_few_calls_does_not_wait() -> None:
    """It is read in each iteration, also while other connections wait for their turns."""
    async with serving() as (server, address):
        honest = await Stranger.connect(address)
        strangers = [await Stranger.connect(address) for _ in range(CONNECTIONS)]
        frames = [opening(stream, headers(PATH)) for stream in range(1, 2 * CALLS, 2)]
        flooded = asyncio.gather(*(stranger.send(*frames) for stranger in strangers))
        await until(lambda: sum(server.of_iterations) >= CONNECTIONS)
        for stream in honest.streams(3):
            answered = honest.frames[HEADERS]
            await honest.send(opening(stream, headers(PATH)), request(stream, message(b"1")))
            await until(lambda: honest.frames[HEADERS] > answered)  # noqa: B023  # awaited in this iteration
        assert sum(server.of_iterations) < CONNECTIONS * CALLS
        await flooded
        await until(lambda: sum(server.of_iterations) == CONNECTIONS * CALLS + 3)
        for stranger in (honest, *strangers):
            await stranger.close()


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_one_iteration_of_the_loop_takes_few_messages(new_loop: Any) -> None:
    """One read could take thousands of empty messages of a stream, and the event loop repeats full reads."""

    async def run() -> None:
        async with serving() as (server, address):
            stranger = await Stranger.connect(address)
            [stream] = stranger.streams(1)
            await stranger.send(opening(stream, headers(MANY)))
            await stranger.send_all(frame(DATA, 0, stream, message(b"")) for _ in range(MESSAGES))
            await until(lambda: sum(server.messages_of_iterations) == MESSAGES)
            await stranger.close()
            assert max(server.messages_of_iterations) <= 2 * CALLS_OF_TURN * FRAMES_OF_CALL

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(run())


def test_reads_grow_while_they_begin_no_calls() -> None:
    """Large messages are read in large pieces."""
    turn, sizes = Turn(), list[int]()
    while not sizes or turn.read_bytes > sizes[-1]:
        sizes.append(turn.read_bytes)
        assert not turn.on_read(turn.read_bytes)
    assert sizes[0] == READ_BYTES_MIN
    assert turn.read_bytes == READ_BYTES


def test_reads_shrink_when_they_begin_many_calls() -> None:
    """The next read begins about as many calls as a turn may."""
    turn = Turn()
    turn.read_bytes, turn.calls = READ_BYTES, 4 * CALLS_OF_TURN
    assert turn.on_read(READ_BYTES)
    assert turn.read_bytes == READ_BYTES // 4
    turn.calls = 100 * CALLS_OF_TURN
    assert turn.on_read(READ_BYTES // 4)
    assert turn.read_bytes == READ_BYTES_MIN


def test_a_read_of_all_bytes_with_few_calls_ends_no_turn() -> None:
    """Such a connection is not paused."""
    turn = Turn()
    turn.calls = CALLS_OF_TURN - 1
    assert not turn.on_read(READ_BYTES_MIN - 1)
    assert turn.read_bytes == READ_BYTES_MIN
