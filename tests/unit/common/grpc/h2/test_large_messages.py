"""Large messages and many answers on a connection: how they are read, acknowledged and written."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest

from ortoo.common.grpc.h2.call import H2Call
from ortoo.common.grpc.h2.limits import WireLimits
from ortoo.common.grpc.h2.server import H2Server
from ortoo.common.grpc.h2.shared.endpoint import CANCEL, WRITE_BYTES
from ortoo.common.grpc.layers.answers import Answers
from ortoo.common.grpc.layers.layer import Layers
from tests.conformance.wire import turns

LARGE = 3 << 20
FRAMES = LARGE // (16 << 10)
"""The number of frames of a large message."""


class Counting:
    """libnghttp2's state of a connection, whose calls are counted."""

    def __init__(self, inner: Any, calls: Counter[str], written: list[int]) -> None:
        self._inner, self._calls, self._written = inner, calls, written

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._inner, name)

        def counted(*given: Any, **named: Any) -> Any:
            self._calls[name] += 1
            result = call(*given, **named)
            if name == "data_to_send":
                self._written.append(len(result))
            return result

        return counted


class Scene:
    """A server whose method answers with its request twice, then with many small answers, and a caller."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self.written: list[int] = []
        self.left = asyncio.Event()
        self.server: H2Server
        self.call: Any = None

    async def handle(self, requests: AsyncIterator[bytes], context: Any) -> AsyncIterator[Any]:
        async for request in requests:
            try:
                while request == b"endless":
                    yield bytes(1_000)
            finally:
                self.left.set()
            yield Answers([request, request])
            yield Answers([b"%d" % number for number in range(100)])


@pytest.fixture
async def scene(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Scene]:
    """Connected."""
    found, connection = Scene(), WireLimits.connection
    monkeypatch.setattr(
        WireLimits, "connection", lambda limits: Counting(connection(limits), found.calls, found.written)
    )
    server = found.server = H2Server([Layers([])], [("grpc.max_receive_message_length", 8 << 20)])
    handlers: dict[str, Any] = {"Call": grpc.stream_stream_rpc_method_handler(found.handle)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("t.Service", handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    channel = grpc.aio.insecure_channel(f"127.0.0.1:{port}", [("grpc.max_receive_message_length", 8 << 20)])
    found.call = channel.stream_stream("/t.Service/Call")
    async with asyncio.timeout(60):
        yield found
    await channel.close()
    await server.stop(None)


async def test_a_handler_that_never_waits_ends_with_its_caller(scene: Scene) -> None:
    """Even if the caller disconnects in the moment in which the handler continues."""
    call = scene.call()
    await call.write(b"endless")
    await call.read()
    [connection] = scene.server.connections
    [[stream_id, served]] = connection.calls.items()
    assert isinstance(served, H2Call)
    async for _ in turns():
        if connection._waiting:
            break
    connection._wake()
    connection._end(stream_id, error_code=CANCEL)
    await scene.left.wait()
    assert served.is_closed
    call.cancel()


async def test_answers_arrive_in_order_whether_or_not_they_are_written_together(scene: Scene) -> None:
    """Large and small ones."""
    call, large = scene.call(), bytes(range(256)) * (LARGE // 256)
    for body in (large, b"small"):
        await call.write(body)
        answers = [await call.read() for _ in range(102)]
        assert answers == [body, body, *(b"%d" % number for number in range(100))]
    call.cancel()


async def test_no_write_is_larger_than_a_buffer_that_is_reused(scene: Scene) -> None:
    """A larger buffer would be new memory at each write."""
    call = scene.call()
    await call.write(bytes(LARGE))
    for _ in range(102):
        await call.read()
    assert sum(scene.written) > 2 * LARGE
    assert max(scene.written) <= WRITE_BYTES <= 128 << 10
    call.cancel()


async def test_the_window_is_opened_once_for_the_frames_of_a_read(scene: Scene) -> None:
    """Not once for each frame."""
    call = scene.call()
    await call.write(bytes(LARGE))
    await call.read()
    assert scene.calls["acknowledge_received_data"] <= scene.calls["receive_data"]
    assert scene.calls["acknowledge_received_data"] < FRAMES
    call.cancel()


async def test_small_answers_that_are_ready_together_are_one_write(scene: Scene) -> None:
    """With one wait for the transport."""
    call = scene.call()
    await call.write(b"x")
    await call.read()
    before = scene.calls["data_to_send"]
    for _ in range(101):
        await call.read()
    assert scene.calls["data_to_send"] - before <= 4
    call.cancel()
