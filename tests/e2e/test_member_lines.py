"""Connections between replicas with cuts: bytes that wait, directions that stay open, and late bytes."""

import asyncio
import os
from types import SimpleNamespace
from typing import Any

import pytest

from tests.e2e.replica_network import ON_LINUX, ReplicaNetwork, replica_network

pytestmark = ON_LINUX


async def connected(lines: ReplicaNetwork) -> tuple[list[asyncio.StreamReader], list[asyncio.StreamWriter]]:
    """Replica 2, which is this process, and replica 1, to which it has a connection, in this order."""
    this: Any = SimpleNamespace(alive=True, pid=os.getpid())
    other: Any = SimpleNamespace(alive=False)
    lines.processes = [other, this]
    came: asyncio.Future[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = asyncio.Future()
    listens = str(lines.settings(1)["REPLICA_LISTEN_ADDRESS"]).split(":")
    server = await asyncio.start_server(lambda *streams: came.set_result(streams), *listens)
    reader, writer = await asyncio.open_connection(*lines.addresses()[0].split(":"))
    far_reader, far_writer = await came
    server.close()
    return [reader, far_reader], [writer, far_writer]


@pytest.mark.parametrize("way", ["to it", "from it"])
async def test_a_member_that_is_deaf_is_heard_and_hears_the_rest_later(way: str) -> None:
    """One of the two directions stays open; the bytes of the other one wait, and arrive in order."""
    deaf = 1 if way == "to it" else 2
    async with replica_network(2) as lines:
        readers, (second, first) = await connected(lines)
        to_the_deaf, of_the_deaf = (second, first) if deaf == 1 else (first, second)
        hears, is_heard = (readers[1], readers[0]) if deaf == 1 else (readers[0], readers[1])
        lines.deafen(deaf)
        to_the_deaf.write(b"un")
        of_the_deaf.write(b"heard")
        assert await is_heard.readexactly(5) == b"heard"
        to_the_deaf.write(b"heard")
        waiting = asyncio.ensure_future(hears.readexactly(7))  # noqa: TID251  # awaited below
        of_the_deaf.write(b"again")
        assert await is_heard.readexactly(5) == b"again"
        assert not waiting.done()
        lines.heal()
        assert await waiting == b"unheard"
        for one in (second, first):
            one.close()


async def test_nothing_passes_a_member_that_is_cut_off_not_even_the_end_of_a_connection() -> None:
    """A side that closes its connection is not noticed: the other side learns of it when the cut ends."""
    async with replica_network(2) as lines:
        (reader, far_reader), (writer, far_writer) = await connected(lines)
        lines.cut_off(1)
        writer.write(b"last")
        writer.close()
        waiting = asyncio.ensure_future(far_reader.read(9))  # noqa: TID251  # awaited below
        _, pending = await asyncio.wait({waiting}, timeout=0.05)
        assert pending, "nothing came"
        lines.heal()
        assert await waiting == b"last"
        assert await far_reader.read(9) == b""
        assert reader.at_eof() or await reader.read(9) == b""
        far_writer.close()
