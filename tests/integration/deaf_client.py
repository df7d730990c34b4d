"""A client that implements HTTP/2 itself and controls how much of its answers it accepts: its window starts closed."""

import asyncio
import contextlib
import ssl
from collections import Counter
from collections.abc import AsyncIterator

from ortoo.common.process.background import Background

DATA, HEADERS, RESET, SETTINGS, PING, GONE, WINDOW = 0, 1, 3, 4, 6, 7, 8
"""Kinds of frames."""
END_STREAM, ACK, END_HEADERS = 1, 1, 4
HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
INITIAL_WINDOW, HEAD_BYTES = 4, 9
HEADS = {":method": "POST", ":scheme": "http", ":authority": "x", "te": "trailers", "content-type": "application/grpc"}


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    """A frame of HTTP/2."""
    return len(payload).to_bytes(3) + bytes([kind, flags]) + stream.to_bytes(4) + payload


class DeafClient:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, window_bytes: int) -> None:
        self._reader, self._writer = reader, writer
        self.taken_bytes: Counter[int] = Counter()
        """Bytes of answers, by stream."""
        self.ended: set[int] = set()
        """Streams whose status came, or that were reset."""
        self.changed = asyncio.Event()
        settings = INITIAL_WINDOW.to_bytes(2) + window_bytes.to_bytes(4)
        writer.write(HELLO + frame(SETTINGS, 0, 0, settings))

    def call(
        self,
        path: str,
        request: bytes,
        *,
        stream: int = 1,
        headers: dict[str, str] | None = None,
        half_close: bool = True,
    ) -> None:
        """Send a request, on a stream with an odd number that grows."""
        told = {":path": path} | HEADS | (headers or {})
        block = b"".join(bytes([0, len(k), *k.encode(), len(v), *v.encode()]) for k, v in told.items())
        data = b"\0" + len(request).to_bytes(4) + request
        self._writer.write(
            frame(HEADERS, END_HEADERS, stream, block) + frame(DATA, END_STREAM if half_close else 0, stream, data)
        )

    def half_close(self, stream: int = 1) -> None:
        """Declare the end of the requests."""
        self._writer.write(frame(DATA, END_STREAM, stream, b""))

    def open_window(self, size_bytes: int, stream: int = 1) -> None:
        """Accept `count` further bytes."""
        self._writer.write(frame(WINDOW, 0, stream, size_bytes.to_bytes(4)))

    def reset(self, stream: int = 1) -> None:
        """Reset a call."""
        self._writer.write(frame(RESET, 0, stream, bytes([0, 0, 0, 8])))

    def drop(self) -> None:
        """Cut the connection."""
        self._writer.transport.abort()

    async def until_taken(self, size_bytes: int, stream: int = 1) -> None:
        """Wait until `count` bytes of an answer have come."""
        while self.taken_bytes[stream] < size_bytes and stream not in self.ended:
            self.changed.clear()
            await self.changed.wait()

    async def until_ended(self, stream: int = 1) -> None:
        """Wait until a call's status has come or it was reset."""
        while stream not in self.ended:
            self.changed.clear()
            await self.changed.wait()

    async def read(self) -> None:
        """Answer the frames that need an answer, and count bytes, while the connection is open."""
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            while True:
                head = await self._reader.readexactly(HEAD_BYTES)
                payload = await self._reader.readexactly(int.from_bytes(head[:3]))
                kind, flags, stream = head[3], head[4], int.from_bytes(head[5:])
                if kind in (SETTINGS, PING) and not flags & ACK:
                    self._writer.write(frame(kind, ACK, 0, payload if kind == PING else b""))
                if kind == DATA:
                    self.taken_bytes[stream] += len(payload)
                if kind == RESET or (kind in (DATA, HEADERS) and flags & END_STREAM):
                    self.ended.add(stream)
                self.changed.set()
        self.ended |= set(range(1, 2_001, 2))
        self.changed.set()


@contextlib.asynccontextmanager
async def deaf_client(
    address: str, *, window_bytes: int = 0, tls: ssl.SSLContext | None = None
) -> AsyncIterator[DeafClient]:
    """A connection to host:port, closed at the end of the block; `tls` as a client's."""
    host, _, port = address.rpartition(":")
    if tls is not None:
        tls.set_alpn_protocols(["h2"])
    reader, writer = await asyncio.open_connection(host, int(port), ssl=tls)
    client = DeafClient(reader, writer, window_bytes)
    async with Background("deaf client") as background:
        background.spawn("read", client.read())
        try:
            yield client
        finally:
            client.drop()
