"""The memory of calls, over real connections: a peer that reads nothing is disconnected, and its memory freed."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable
from typing import Any, cast

import grpc
import pytest

from ortoo.common.errors import Overloaded
from ortoo.common.grpc.layers.arrival import ARRIVAL, Arrival
from ortoo.common.grpc.layers.call_memory import (
    CALL_BYTES,
    REQUEST_COPIES,
    TRANSPORT_COPIES,
    CallMemory,
    current_memory_share,
)
from ortoo.common.grpc.layers.layer import Method, ServedCall
from ortoo.common.grpc.limits.connections import peer_of
from ortoo.common.grpc.server import GrpcServer
from ortoo.common.logs import log_events
from ortoo.common.process.clock import SystemClock
from ortoo.common.process.memory_budget import RESIDENT_PERCENT, MemoryBudget, MemoryShare

pytestmark = pytest.mark.usefixtures("each_transport")

ANSWER = bytes(8 << 20)
"""More than the window that gRPC gives a peer which does not read."""


LARGE = bytes(4 << 20)


async def large_answer(request: bytes, context: Any) -> bytes:
    """A large answer."""
    return ANSWER


def server_of(budget: MemoryBudget, answers: Any, answer: Any = large_answer) -> GrpcServer:
    """A server with a bidirectional method, and a unary one."""
    handlers = {
        "Many": grpc.stream_stream_rpc_method_handler(answers, bytes, bytes),
        "One": grpc.unary_unary_rpc_method_handler(answer, bytes, bytes),
    }
    generic = grpc.method_handlers_generic_handler("ortoo.v1.Test", handlers)
    return GrpcServer(
        "127.0.0.1:0", [("ortoo.v1.Test", lambda s: s.add_generic_rpc_handlers((generic,)))], memory=budget
    )


@contextlib.asynccontextmanager
async def connected(server: GrpcServer) -> AsyncIterator[grpc.aio.Channel]:
    """A connection of its own that takes large answers."""
    options = [("grpc.max_receive_message_length", -1), ("grpc.use_local_subchannel_pool", 1)]
    async with grpc.aio.insecure_channel(server.address, options=options) as channel:
        yield channel


async def until(condition: Callable[[], bool]) -> None:
    """Wait for a condition that another task fulfils."""
    while not condition():
        await SystemClock().sleep(0.01)


async def test_a_peer_that_reads_nothing_is_ended_and_its_answers_are_let_go() -> None:
    """The handler waits in a write that never ends; closing the connection ends it, and others continue."""
    budget, opened, over = MemoryBudget(1 << 30), asyncio.Queue[MemoryShare](), asyncio.Event()

    async def answers(requests: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
        share = current_memory_share()
        assert share is not None
        opened.put_nowait(share)
        context.add_done_callback(lambda _: over.set())
        async for request in requests:
            for _ in range(int(request)):
                yield ANSWER

    server = server_of(budget, answers)
    async with asyncio.timeout(60), server, connected(server) as deaf, connected(server) as honest:
        call: Any = deaf.stream_stream("/ortoo.v1.Test/Many")()
        await call.write(b"5")
        share = await opened.get()
        await until(lambda: share.unread_bytes == TRANSPORT_COPIES * len(ANSWER))
        assert budget.used_bytes == CALL_BYTES + TRANSPORT_COPIES * len(ANSWER)
        reading: Any = honest.stream_stream("/ortoo.v1.Test/Many")()
        await reading.write(b"1")
        await opened.get()
        share.evict("it does not read")
        await over.wait()
        assert budget.by_kind() in (
            {("Many",): CALL_BYTES},
            {("Many",): CALL_BYTES + TRANSPORT_COPIES * len(ANSWER)},
        )
        assert await reading.read() == ANSWER
        with pytest.raises(grpc.aio.AioRpcError):
            while await call.read() is not grpc.aio.EOF:
                pass
        reading.cancel()


class Context:
    """The context of a call whose connection is no socket of this process."""

    def peer(self) -> str:
        """A peer without a port."""
        return "memory:1"


async def test_a_call_that_is_ended_without_its_connection_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    """The event counts closed connections. A call over another transport is cancelled instead."""
    calls = CallMemory(MemoryBudget(1 << 30))
    arrival = Arrival("One", (), is_observer=False, gives_many=False)
    calls.arrive(arrival)
    arrival.ends_connection = True
    method = Method(
        "/ortoo.v1.Test/One", "One", is_request_stream=False, is_response_stream=False, read=bytes, write=bytes
    )

    async def call() -> None:
        ARRIVAL.set(arrival)
        calls.enter(ServedCall(method, b"", cast("Any", Context())))
        await asyncio.Event().wait()

    with caplog.at_level(logging.WARNING):
        async with asyncio.timeout(60):
            await asyncio.gather(call(), return_exceptions=True)
    assert calls.ended == {"unread": 0, "headers": 0, "requests": 0}
    assert log_events.CONNECTIONS_CLOSED.name not in caplog.text


async def test_a_single_answer_that_nobody_takes_counts_until_its_peer_is_gone() -> None:
    """The handler has long returned, and gRPC still keeps its answers."""
    budget = MemoryBudget(1 << 30)
    async with asyncio.timeout(60), server_of(budget, None) as server:
        async with connected(server) as channel:
            one: Any = channel.unary_unary("/ortoo.v1.Test/One")
            calls = [one(b"") for _ in range(3)]
            assert [len(await call) for call in calls] == [len(ANSWER)] * 3
        await until(lambda: not budget.used_bytes)


async def test_a_call_that_does_not_fit_is_refused() -> None:
    """Each call uses memory, and a refusal contains its size."""
    budget = MemoryBudget(1)
    async with asyncio.timeout(60), server_of(budget, None) as server, connected(server) as channel:
        one: Any = channel.unary_unary("/ortoo.v1.Test/One")
        with pytest.raises(grpc.aio.AioRpcError, match=f"One needs {CALL_BYTES} bytes more") as refused:
            await one(b"")
        assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert budget.refused == {"One": 1}
        with pytest.raises(Overloaded):
            budget.share("Many").draw_fixed(1)


async def test_what_a_request_brings_counts_while_it_is_served() -> None:
    """G17: large requests that wait for another process fill the budget, and the next one is Overloaded."""
    budget = MemoryBudget((CALL_BYTES + REQUEST_COPIES * len(LARGE)) * RESIDENT_PERCENT * 9 // 500)
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def waits(request: bytes, context: Any) -> bytes:
        begun.set()
        await go_on.wait()
        return b""

    async with asyncio.timeout(60), server_of(budget, None, waits) as server, connected(server) as channel:
        one: Any = channel.unary_unary("/ortoo.v1.Test/One")
        first = one(LARGE)
        await begun.wait()
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await one(LARGE)
        assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert budget.used_bytes == CALL_BYTES + REQUEST_COPIES * len(LARGE)
        go_on.set()
        assert await first == await one(b"") == b""
        await until(lambda: not budget.used_bytes)


async def test_the_largest_request_passes_also_where_little_memory_is() -> None:
    """Otherwise the largest request would be refused and retried for ever."""
    budget = MemoryBudget(64 << 20)
    assert budget.bytes_max < REQUEST_COPIES * len(LARGE)

    async def taken(request: bytes, context: Any) -> bytes:
        return str(len(request)).encode()

    async with asyncio.timeout(60), server_of(budget, None, taken) as server, connected(server) as channel:
        one: Any = channel.unary_unary("/ortoo.v1.Test/One")
        assert await one(LARGE) == str(len(LARGE)).encode()
        await until(lambda: not budget.used_bytes)


@pytest.mark.parametrize(
    ("name", "peer"),
    [
        ("ipv4:127.0.0.1:4711", ("127.0.0.1", 4711)),
        ("ipv6:%5B::1%5D:4711", ("::1", 4711)),
        ("ipv6:[fe80::1%25eth0]:9", ("fe80::1", 9)),
        ("unix:/tmp/socket", None),
        ("", None),
    ],
)
def test_peers_are_known_by_what_grpc_says_of_them(name: str, peer: tuple[str, int] | None) -> None:
    """Addresses of both versions, and none where there is no port."""
    assert peer_of(name) == peer
