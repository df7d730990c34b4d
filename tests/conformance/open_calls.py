"""Open calls of three kinds, for cases that break the connection or the server."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from tests.conformance.wire import Served, answering, requesting, unary, until


async def echo(request: bytes, context: Any) -> bytes:
    """Answer with the request."""
    return request


class Waiting:
    """Handlers that wait forever and record how they end."""

    def __init__(self) -> None:
        self.called = 0
        self.requests: list[bytes] = []
        self.ended: list[str] = []

    async def one(self, request: Any, context: Any) -> bytes:
        self.called += 1
        try:
            await asyncio.get_running_loop().create_future()
        except BaseException as error:
            self.ended.append(type(error).__name__)
            raise
        return b"never"

    async def three_first(self, request: Any, context: Any) -> AsyncIterator[bytes]:
        for number in range(3):
            yield b"%d" % number
        yield await self.one(request, context)

    async def reads(self, requests: Any, context: Any) -> bytes:
        await context.send_initial_metadata(())
        async for request in requests:
            self.requests.append(request)
        self.ended.append(f"read {self.requests}")
        return await self.one(requests, context)


async def opened(served: Served, waiting: Waiting) -> tuple[Any, Any, Any]:
    """Three open calls: unary, a stream of which one of three answers is read, one whose requests are read."""
    one, stream, requests = served.call("One"), served.answers("Three"), served.requests("Reads")
    assert await stream.read() == b"0"
    await requests.write(b"request")
    await until(lambda: waiting.called == 2 and waiting.requests == [b"request"])
    return one, stream, requests


def waiting_handlers(waiting: Waiting) -> dict[str, Any]:
    return {
        "One": unary(waiting.one),
        "Three": answering(waiting.three_first),
        "Reads": requesting(waiting.reads),
        "Echo": unary(echo),
    }
