"""A client of gRPC's wire that needs little processor time, so that one process is thousands of clients."""

import asyncio
from collections.abc import Iterable
from typing import Any

from ortoo.common.grpc.h2 import engine
from ortoo.common.grpc.h2.framing import CONTENT_TYPE, MessageReader, frame
from ortoo.common.grpc.h2.limits import WireLimits


class LightConnection(asyncio.Protocol):
    """One connection. Requests are sent as grpc-java sends them: headers, and one frame that ends the stream."""

    def __init__(self, authority: str) -> None:
        """A connection that is not made yet; see `connect`."""
        self._authority = authority.encode()
        self._limits = WireLimits()
        self._h2 = self._limits.client_connection()
        self._calls: dict[int, tuple[asyncio.Future[list[bytes]], MessageReader, list[bytes]]] = {}

    @classmethod
    async def connect(cls, address: str) -> "LightConnection":
        """Connect to host:port."""
        host, _, port = address.rpartition(":")
        _, made = await asyncio.get_running_loop().create_connection(lambda: cls(address), host, int(port))
        return made

    def connection_made(self, transport: Any) -> None:
        """Send the settings."""
        self._transport = transport
        self._h2.initiate_connection(self._limits.settings())
        self._send()

    def data_received(self, data: bytes) -> None:
        """Collect answers."""
        if self._transport.is_closing():
            return
        self._h2.receive_data(data)
        for event in self._h2.events():
            if isinstance(event, engine.DataReceived) and event.stream_id in self._calls:
                _, reader, answers = self._calls[event.stream_id]
                answers += reader.feed(event.data)
                self._h2.acknowledge_received_data(len(event.data), event.stream_id)
            elif isinstance(event, engine.StreamClosed) and event.stream_id in self._calls:
                ended, _, answers = self._calls.pop(event.stream_id)
                if not ended.done():
                    ended.set_result(answers)
        self._send()

    def connection_lost(self, error: Exception | None) -> None:
        """Fail the open calls."""
        for ended, _, _ in self._calls.values():
            if not ended.done():
                ended.set_exception(ConnectionError("the connection was lost"))

    def call(
        self,
        path: str,
        request: bytes,
        metadata: Iterable[tuple[str, str]],
        open_answers: list[bytes] | None = None,
    ) -> "asyncio.Future[list[bytes]]":
        """Send a request; the result are the answers.

        With `open_answers` the stream stays open for further requests, and this list gets each answer at once.
        """
        stream_id = self._h2.send_request((
            (b":method", b"POST"), (b":scheme", b"http"), (b":path", path.encode()), (b":authority", self._authority),
            (b"content-type", CONTENT_TYPE), (b"te", b"trailers"),
            *((name.encode(), value.encode()) for name, value in metadata),
        ))  # fmt: skip
        self._h2.send_data(stream_id, frame(request), end_stream=open_answers is None)
        ended: asyncio.Future[list[bytes]] = asyncio.get_running_loop().create_future()
        answers = [] if open_answers is None else open_answers
        self._calls[stream_id] = ended, MessageReader(self._limits.message_bytes_max), answers
        self._send()
        return ended

    def close(self) -> None:
        """Break the connection."""
        self._transport.abort()

    def _send(self) -> None:
        while data := self._h2.data_to_send():
            self._transport.write(data)
