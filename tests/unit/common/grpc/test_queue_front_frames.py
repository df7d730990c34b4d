"""The queue front with HTTP/2 frames that no client library sends: resets, floods, a call during the stop."""

import asyncio
import threading
from collections import Counter
from typing import Any

import pytest

from ortoo.common.grpc.completion_queue import core
from ortoo.common.process.background import Background
from tests.unit.common.grpc.test_queue_front import ENDED_S, NAME, Served, served, until

HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes.fromhex("000000040000000000")
HEADS = {
    ":method": "POST",
    ":scheme": "http",
    ":authority": "x",
    "te": "trailers",
    "content-type": "application/grpc",
}
DATA, HEADERS, RESET = 0, 1, 3
"""Frames of HTTP/2."""


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    """A frame of HTTP/2."""
    return len(payload).to_bytes(3) + bytes([kind, flags]) + stream.to_bytes(4) + payload


def head(method: str, stream: int) -> bytes:
    """The first frames of a call."""
    told = {":path": f"/{NAME}/{method}"} | HEADS
    return frame(
        HEADERS, 4, stream, b"".join(bytes([0, len(k), *k.encode(), len(v), *v.encode()]) for k, v in told.items())
    )


async def test_a_call_that_came_when_the_stop_began_is_served() -> None:
    """The front had taken the call before its handler began, and the stop waits only for it."""
    one, loop, woken = Served(), asyncio.get_running_loop(), threading.Event()
    wake = loop.call_soon_threadsafe

    def waking(*args: Any) -> asyncio.Handle:
        if threading.current_thread().name == "queue front":  # other threads wake the loop too
            woken.set()
        return wake(*args)

    async def answer() -> None:
        await reader.readuntil(b"owed")
        writer.close()

    await one.server.__aenter__()
    host, _, port = one.server.address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    loop.call_soon_threadsafe = waking  # type: ignore[assignment]
    request = head("Echo", 1) + frame(DATA, 1, 1, b"\0\0\0\0\4owed")
    writer.write(HELLO + request)  # a short text is passed to the kernel at once
    assert woken.wait(ENDED_S)
    async with asyncio.timeout(ENDED_S), Background("test") as background:
        answered = background.spawn("answer", answer())
        await one.server.__aexit__(None, None, None)  # begins before the loop has its turn
        await answered
    await until(lambda: not [one for one in threading.enumerate() if one.name == "queue front"])


async def test_a_flood_leaves_other_work_its_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """One turn of the loop begins at most as many simultaneous calls as it takes events."""
    monkeypatch.setattr(core, "EVENTS_MAX", 8)
    async with served() as (one, method):
        begun: Counter[int] = Counter()

        def turn(number: int) -> None:
            begun[number] = one.waiting.qsize() - begun.total()
            if not one.cancelled:
                asyncio.get_running_loop().call_soon(turn, number + 1)

        turn(0)
        host, _, port = one.server.address.rpartition(":")
        _, writer = await asyncio.open_connection(host, int(port))
        writer.write(HELLO + b"".join(head("Wait", at) + frame(DATA, 1, at, bytes(5)) for at in range(1, 201, 2)))
        await until(lambda: one.waiting.qsize() == 100)
        assert await method("Cold")(b"c") == b"c"
        assert max(begun.values()) <= 2 * 8  # those of one turn before the check, and of the next one after it
        writer.close()
        await until(lambda: one.cancelled == 100)


async def test_calls_that_are_reset_in_the_breath_they_are_asked_in_are_ended() -> None:
    """Request and reset in one packet: the call ends before its task begins, and neither is left over."""
    async with served() as (one, method):
        own = one.server._queue_server._core  # type: ignore[union-attr]
        idle, streams = own.open, range(1, 101, 2)
        host, _, port = one.server.address.rpartition(":")
        _, writer = await asyncio.open_connection(host, int(port))
        writer.write(HELLO + b"".join(head("Wait", at) for at in streams))
        await until(lambda: own.open == idle + 3 * len(streams))
        writer.write(b"".join(frame(DATA, 1, at, bytes(5)) + frame(RESET, 0, at, bytes(4)) for at in streams))
        await until(lambda: own.open == idle)
        writer.close()
        assert await method("Echo")(b"on") == b"on"
        await until(lambda: one.budget.used_bytes == 0)
