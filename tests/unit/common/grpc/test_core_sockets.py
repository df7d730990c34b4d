"""Resets that gRPC's core counts, with servers of grpc.aio."""

import asyncio

import pytest

from ortoo.common.grpc.limits import connection_limits, connection_watch, core_sockets
from ortoo.common.grpc.limits.connection_limits import Resets
from ortoo.common.grpc.limits.core_sockets import CoreSockets
from ortoo.common.process.clock import SystemClock
from tests.hostile.http2 import CANCELLED, RST_STREAM, Stranger, frame, headers, opening
from tests.unit.common.grpc.served import ENDED_S, NAME, Served, connected, served, until

RESETS = 20
pytestmark = [
    pytest.mark.usefixtures("each_transport"),
    pytest.mark.parametrize("each_transport", ["grpc"], indirect=True),
]


def reset_of(stream: int) -> tuple[bytes, bytes]:
    """The frames of a call that ends without a request."""
    return opening(stream, headers(f"/{NAME}/Wait")), frame(RST_STREAM, 0, stream, CANCELLED)


async def resetting(one: Served) -> Stranger:
    """A connection that has reset streams without requests."""
    stranger = await Stranger.connect(one.server.address)
    for stream in stranger.streams(RESETS):
        await stranger.send(*reset_of(stream))
    return stranger


async def test_each_connection_is_listed_with_its_resets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Page by page, and from the first one again."""
    monkeypatch.setattr(core_sockets, "SOCKETS_A_LOOK", 1)
    async with served() as (one, _), connected(one.server.address) as channel:
        sockets = CoreSockets.of_newest()
        assert sockets is not None
        assert await channel.unary_unary(f"/{NAME}/Echo")(b"x") == b"x"
        stranger = await resetting(one)

        def listed() -> list[tuple[int, int]]:
            found, is_last = list[tuple[int, int]](), False
            while not is_last:
                page, is_last = sockets.next()
                found += [(counts.count, counts.messages) for counts in map(sockets.resets, page)]
            return sorted(found)

        await until(lambda: len(listed()) == 2 and listed()[1] >= (RESETS // 2, 0))  # older cores miss the first one
        assert listed()[0] == (0, 1)
        [[first], _] = sockets.next()
        assert len(listed()) == 1, "the other one, which is the last"
        await stranger.close()
    # The core forgets a socket some time after its end.
    await until(lambda: listed() == [] and sockets.resets(first) == Resets(0, 0))


async def test_a_peer_that_resets_streams_is_disconnected(monkeypatch: pytest.MonkeyPatch) -> None:
    """While the process is busy; other connections stay."""
    monkeypatch.setattr(connection_watch, "BUSY_PERCENT", 0)
    monkeypatch.setattr(connection_watch, "LOOK_INTERVAL_S", 0.05)
    monkeypatch.setattr(connection_limits, "EMPTY_RESETS_TOGETHER_MAX", RESETS)
    monkeypatch.setattr(connection_limits, "EMPTY_RESETS_PER_S_MAX", 0)
    async with served() as (one, _), connected(one.server.address) as channel, asyncio.timeout(ENDED_S):
        call = channel.unary_unary(f"/{NAME}/Echo")
        assert await call(b"x") == b"x"
        stranger = await resetting(one)
        while stranger.is_open:
            [stream] = stranger.streams(1)
            await stranger.send(*reset_of(stream))
            await SystemClock().sleep(0.005)
        await until(lambda: one.server.ended_connections()["resets"] == 1)  # counted when the socket is closed
        assert await call(b"x") == b"x"
        await stranger.close()
