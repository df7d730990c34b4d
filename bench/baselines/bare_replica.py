"""A replica reduced to transport and disk: frames arrive on a bare stream, are written, synced and acknowledged.

`python -m bench.baselines.bare_replica FOLDER` runs a follower and prints its address; `carried` leads two of them.
"""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any

import grpc

from ortoo.common.grpc.channels import OPTIONS
from ortoo.common.machine.allocator import retain_freed_buffers
from ortoo.common.machine.event_loop import RoleLoop

METHOD = "/bench.Member/Exchange"
SEGMENT_BYTES = 256 << 20
WINDOW_BYTES = 16 << 20
"""The unacknowledged bytes that a leader may have sent to each follower."""


class Follower:
    """Writes into preallocated segments, as an enode does. Frames that arrive during a sync share the next one."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._numbers = count()
        self._file, self._at = -1, SEGMENT_BYTES
        self._waiting: list[bytes] = []
        self._some = asyncio.Event()
        self._thread = ThreadPoolExecutor(1)

    async def speak(self, requests: AsyncIterator[bytes], context: Any) -> None:
        """Receive frames; each answer is the number of bytes that a sync made durable."""
        flushing = asyncio.get_running_loop().create_task(self._flush(context))
        try:
            async for content in requests:
                self._waiting.append(content)
                self._some.set()
        finally:
            flushing.cancel()

    async def _flush(self, context: Any) -> None:
        while True:
            await self._some.wait()
            self._some.clear()
            parts, self._waiting = self._waiting, []
            await asyncio.get_running_loop().run_in_executor(self._thread, self._store, parts)
            await context.write(str(sum(map(len, parts))).encode())

    def _store(self, parts: list[bytes]) -> None:
        length = sum(map(len, parts))
        if self._at + length > SEGMENT_BYTES:
            if self._file >= 0:
                os.close(self._file)
            self._file = os.open(self._folder / str(next(self._numbers)), os.O_RDWR | os.O_CREAT)
            os.posix_fallocate(self._file, 0, SEGMENT_BYTES)
            self._at = 0
        os.pwritev(self._file, parts, self._at)
        os.fdatasync(self._file)
        self._at += length


async def carried(addresses: list[str], content: bytes, seconds: float) -> int:
    """Send `content` to all followers for `seconds`, within the window; returns the bytes each one synced."""
    end_s = asyncio.get_running_loop().time() + seconds

    async def lead(address: str) -> int:
        sent = synced = 0
        async with grpc.aio.insecure_channel(address, options=OPTIONS) as channel:
            call: Any = channel.stream_stream(METHOD)()
            while asyncio.get_running_loop().time() < end_s:
                while sent - synced < WINDOW_BYTES:
                    await call.write(content)
                    sent += len(content)
                synced += int(await call.read())
            while synced < sent:
                synced += int(await call.read())
            call.cancel()
        return synced

    return min(await asyncio.gather(*map(lead, addresses)))


@asynccontextmanager
async def bare_follower(folder: Path) -> AsyncIterator[tuple[str, int]]:
    """A follower process in a folder that it creates: its address and its process id."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "bench.baselines.bare_replica", str(folder), stdout=asyncio.subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        yield (await process.stdout.readline()).decode().strip(), process.pid
    finally:
        process.kill()
        await process.wait()


async def _serve(folder: Path) -> None:
    retain_freed_buffers()
    server = grpc.aio.server(options=OPTIONS)
    handler: Any = grpc.stream_stream_rpc_method_handler(Follower(folder).speak)
    service, method = METHOD.strip("/").split("/")
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, {method: handler}),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    print(f"127.0.0.1:{port}", flush=True)
    await server.wait_for_termination()


if __name__ == "__main__":
    (made := Path(sys.argv[1])).mkdir(parents=True)
    with asyncio.Runner(loop_factory=RoleLoop) as runner:
        runner.run(_serve(made))
