"""Floods by unauthenticated clients, each against one process.

Each flood returns its connections, still open, so that their memory can be measured before they are closed.
"""

import asyncio
import gzip
import socket
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass

from ortoo.common.grpc.channels import MESSAGE_BYTES_MAX
from ortoo.common.process.clock import SystemClock
from tests.hostile.http2 import (
    CANCELLED,
    DATA,
    FRAME_BYTES_MAX,
    RST_STREAM,
    Stranger,
    frame,
    headers,
    message,
    opening,
    request,
)

WATCH, CHECK = "/grpc.health.v1.Health/Watch", "/grpc.health.v1.Health/Check"
A_CONNECTION = 500
"""The calls of one connection of a flood."""
RESETS_TOGETHER, RESETS_S = 200, 40.0
EMPTY_ELEMENTS = gzip.compress((b"\x0a\x00" * MESSAGE_BYTES_MAX)[: MESSAGE_BYTES_MAX - 64], 9)
"""Four million empty messages in the list of field 1, compressed to 8 KB."""


@dataclass(frozen=True, slots=True)
class Target:
    """The process to flood, and a method with a list in field 1 of its request."""

    address: str
    method: str
    more: tuple[tuple[str, str], ...] = ()
    """Further headers of its calls."""


Flood = Callable[[Target, float], Awaitable[list[Stranger]]]


async def _connections(target: Target, count: int) -> list[Stranger]:
    """Up to `count` connections, as the process accepts them."""
    found: list[Stranger] = []
    for _ in range(count):
        try:
            found.append(await Stranger.connect(target.address))
        except OSError:
            break
    return found


async def empty_elements(target: Target, scale: float) -> list[Stranger]:
    """Requests of 8 KB that inflate to four million elements, several at once on four connections."""
    strangers = await _connections(target, 4)
    block = headers(target.method, ("grpc-encoding", "gzip"), *target.more)
    data = message(EMPTY_ELEMENTS, is_compressed=True)
    for stranger in strangers:
        for stream in stranger.streams(max(1, round(20 * scale))):
            await stranger.send(opening(stream, block), request(stream, data))
    return strangers


async def _calls(target: Target, count: int, block: bytes, data: bytes | None) -> list[Stranger]:
    """Open calls by the hundred; without `data` their requests never arrive."""
    strangers = await _connections(target, -(-count // A_CONNECTION))

    def frames(stranger: Stranger) -> Iterator[bytes]:
        for stream in stranger.streams(min(count, A_CONNECTION)):
            yield opening(stream, block) + (b"" if data is None else request(stream, data))

    await asyncio.gather(*(stranger.send_all(frames(stranger)) for stranger in strangers))
    return strangers


async def watchers(target: Target, scale: float) -> list[Stranger]:
    """Streams that watch the health of the process."""
    return await _calls(target, round(20_000 * scale), headers(WATCH), message(b""))


async def silent_calls(target: Target, scale: float) -> list[Stranger]:
    """Calls whose requests never arrive."""
    return await _calls(target, round(20_000 * scale), headers(target.method), None)


async def silent_checks(target: Target, scale: float) -> list[Stranger]:
    """The same with the method that is always answered."""
    return await _calls(target, round(20_000 * scale), headers(CHECK), None)


async def long_headers(target: Target, scale: float) -> list[Stranger]:
    """Calls with 60 KB of headers each, opened before the process could announce its lower limit."""
    return await _calls(target, round(9_300 * scale), headers(target.method, ("x-a", "a" * 60_000)), None)


async def full_headers(target: Target, scale: float) -> list[Stranger]:
    """Calls with the allowed number of headers."""
    return await _calls(target, round(9_300 * scale), headers(target.method, ("x-a", "a" * 15_000)), None)


async def resets(target: Target, _: float) -> list[Stranger]:
    """Streams that are opened and reset at once, until the process ends the connection."""
    [stranger] = await _connections(target, 1)
    clock, block = SystemClock(), headers(target.method)
    end_s = clock.monotonic_s() + RESETS_S
    while clock.monotonic_s() < end_s:
        streams = stranger.streams(RESETS_TOGETHER)
        said = [opening(stream, block) + frame(RST_STREAM, 0, stream, CANCELLED) for stream in streams]
        if not await stranger.send(*said):
            break
    return [stranger]


async def halves(target: Target, scale: float) -> list[Stranger]:
    """Many requests at once, each with its first 8 MiB but for a few bytes; no request is ever complete."""
    strangers = await _connections(target, 4)
    data, block = message(bytes(MESSAGE_BYTES_MAX - 64)), headers(target.method)

    async def send(stranger: Stranger) -> None:
        streams = stranger.streams(max(1, round(100 * scale)))
        await stranger.send(*(opening(stream, block) for stream in streams))
        for at in range(0, len(data) - 10, FRAME_BYTES_MAX):
            part = data[at : min(at + FRAME_BYTES_MAX, len(data) - 10)]
            if not await stranger.send(*(frame(DATA, 0, stream, part) for stream in streams)):
                return

    await asyncio.gather(*map(send, strangers))
    return strangers


FLOODS: dict[str, Flood] = {
    flood.__name__: flood
    for flood in (
        *(empty_elements, watchers, silent_calls, silent_checks, long_headers, full_headers, resets),
        halves,
    )
}
"""By name. The last one uses memory that only the process's resident memory shows."""


def idle_sockets(address: str, count: int, said: bytes = b"") -> list[socket.socket]:
    """Connections that send `said` and then nothing, as many as are accepted."""
    host, _, port = address.rpartition(":")
    found: list[socket.socket] = []
    for _ in range(count):
        try:
            one = socket.create_connection((host, int(port)), timeout=5.0)
            one.sendall(said)
        except OSError:
            break
        found.append(one)
    return found
