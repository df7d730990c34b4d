"""Plain grpc.aio over the same two hops, with nothing done to the bytes: client -> proxy -> sink.

`python -m bench.baselines.grpc_hops sink` and `... proxy SINK` are the two servers. Each prints its address when it is
ready. `Forward` streams blobs through both. `Call` is unary to the proxy, which carries it on its one stream to the
sink: the shape of a durable send without the durability.
"""

import asyncio
import contextlib
import sys
import time
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc

OPTIONS = [("grpc.max_send_message_length", 8 << 20), ("grpc.max_receive_message_length", 8 << 20)]
ACK = b"ok"
Stream = grpc.aio.StreamStreamMultiCallable[bytes, bytes]


async def _sink_forward(requests: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
    async for _ in requests:
        yield ACK


class Proxy:
    """Carries streams one to one, and unary calls over one shared stream."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        """Forward to the sink behind `channel`."""
        self._forward: Stream = channel.stream_stream("/bench.Hops/Forward")
        self._shared = self._forward()
        self._waiting: deque[asyncio.Future[bytes]] = deque()
        self._outgoing: asyncio.Queue[bytes] = asyncio.Queue()

    async def carry(self) -> None:
        """Run the shared stream until it breaks."""
        writing = asyncio.get_running_loop().create_task(self._write())
        try:
            await self._read()
        finally:
            writing.cancel()

    async def _write(self) -> None:
        while True:
            await self._shared.write(await self._outgoing.get())

    async def _read(self) -> None:
        async for answer in self._shared:
            future = self._waiting.popleft()
            if not future.done():  # its caller may have been cancelled
                future.set_result(answer)

    async def forward(self, requests: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
        """One stream to one stream."""
        async for answer in self._forward(requests):
            yield answer

    async def call(self, request: bytes, context: Any) -> bytes:
        """One unary call over the shared stream."""
        future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        self._outgoing.put_nowait(request)
        return await future


async def _serve(role: str, sink: str) -> None:
    server = grpc.aio.server(options=OPTIONS)
    handlers: dict[str, Any] = {"Forward": grpc.stream_stream_rpc_method_handler(_sink_forward)}
    proxy = None
    if role == "proxy":
        proxy = Proxy(grpc.aio.insecure_channel(sink, options=OPTIONS))
        handlers = {
            "Forward": grpc.stream_stream_rpc_method_handler(proxy.forward),
            "Call": grpc.unary_unary_rpc_method_handler(proxy.call),
        }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("bench.Hops", handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    print(f"127.0.0.1:{port}", flush=True)
    # Both servers are killed at the end of a measurement, so errors are expected.
    with contextlib.suppress(grpc.aio.AioRpcError):
        await (proxy.carry() if proxy else server.wait_for_termination())


@asynccontextmanager
async def hops() -> AsyncIterator[grpc.aio.Channel]:
    """A channel to the proxy in front of the sink, each a process of its own."""
    processes = []
    try:
        address = ""
        for role in ("sink", "proxy"):
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "bench.baselines.grpc_hops", role, address, stdout=asyncio.subprocess.PIPE
            )
            processes.append(process)
            assert process.stdout is not None
            address = (await process.stdout.readline()).decode().strip()
        async with grpc.aio.insecure_channel(address, options=OPTIONS) as channel:
            yield channel
    finally:
        for process in reversed(processes):
            process.kill()
            await process.wait()


async def stream_blobs(channel: grpc.aio.Channel, blob_bytes: int, seconds: float, in_flight: int) -> dict[str, float]:
    """Stream equal blobs for `seconds` with `in_flight` unanswered; MB/s of payload through both hops."""
    window = asyncio.Semaphore(in_flight)
    blob = bytes(blob_bytes)
    stop_at = time.perf_counter() + seconds

    async def blobs() -> AsyncIterator[bytes]:
        while time.perf_counter() < stop_at:
            await window.acquire()
            yield blob

    count = 0
    started = time.perf_counter()
    forward: Stream = channel.stream_stream("/bench.Hops/Forward")
    async for _ in forward(blobs()):
        window.release()
        count += 1
    elapsed = time.perf_counter() - started
    return {
        "blob_bytes": blob_bytes,
        "blobs_per_s": round(count / elapsed, 1),
        "mb_per_s": round(count * blob_bytes / elapsed / 1e6, 1),
    }


async def streamed(seconds: float) -> dict[str, float]:
    """1 MiB blobs through two hops started for this measurement, 16 unanswered."""
    async with hops() as channel:
        return await stream_blobs(channel, 1 << 20, seconds, 16)


if __name__ == "__main__":
    asyncio.run(_serve(sys.argv[1], sys.argv[2]))
