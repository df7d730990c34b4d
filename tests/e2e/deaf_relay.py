"""A relay to a server that can drop answers while requests still arrive."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

from ortoo.common.process.background import Background

READ_BYTES = 1 << 16


class DeafRelay:
    """Forwards bytes between its clients and one server; while `deaf`, the server's bytes are dropped."""

    def __init__(self, target: str) -> None:
        """`target` is the server's host:port."""
        self.deaf = False
        self.swallowed = asyncio.Event()
        """Set when bytes of the server were dropped."""
        self.address = ""
        self._host, _, port = target.rpartition(":")
        self._port = int(port)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection, until either side closes it."""
        try:
            far_reader, far_writer = await asyncio.open_connection(self._host, self._port)
        except OSError:
            writer.close()
            return
        try:
            async with Background("relay") as background:
                requests = background.spawn("requests", self._pass_on(reader, far_writer, answers=False))
                answers = background.spawn("answers", self._pass_on(far_reader, writer, answers=True))
                await asyncio.wait({requests, answers}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            far_writer.close()
            writer.close()

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, answers: bool) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(READ_BYTES):
                if answers and self.deaf:
                    self.swallowed.set()
                    continue
                writer.write(data)
                await writer.drain()


@contextlib.asynccontextmanager
async def deaf_relay(target: str) -> AsyncIterator[DeafRelay]:
    """A relay to the server at `target`, on a port of its own."""
    relay = DeafRelay(target)
    server = await asyncio.start_server(relay.serve, "127.0.0.1", 0)
    relay.address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield relay
    finally:
        server.close()
