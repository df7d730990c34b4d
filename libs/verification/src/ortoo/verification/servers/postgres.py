"""A real PostgreSQL for tests: its programs come in a wheel, its data in a temporary folder.

async with postgres() as database:
... database.url ...
await database.stop()
await database.start()      # same port, same data
"""

import asyncio
import atexit
import contextlib
import importlib.util
import os
import pwd
import shutil
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

from ortoo.common.process.clock import SystemClock
from ortoo.verification.servers.ports import free_port

USER = "nobody"
"""The user that runs the server when the tests run as root, which PostgreSQL refuses."""
READY_TIMEOUT_S = 120.0
_made: list[Path] = []
"""The empty data folder that the servers of this process are copies of, if it exists yet."""


class Postgres:
    """One server process. It keeps its port and its data over restarts."""

    def __init__(self, folder: Path, port: int) -> None:
        """Use `postgres`."""
        self.port = port
        self._folder = folder
        self._process: asyncio.subprocess.Process | None = None

    @property
    def url(self) -> str:
        """The URL for SQLAlchemy."""
        return f"postgresql+psycopg://postgres@127.0.0.1:{self.port}/postgres"

    async def start(self) -> None:
        """Start it; returns when it accepts connections."""
        async with asyncio.timeout(READY_TIMEOUT_S):
            while await (await _spawn("pg_isready", "-h", "127.0.0.1", "-p", str(self.port))).wait() != 0:
                if self._process is None or self._process.returncode is not None:
                    # A child of the killed server may hold its shared memory for another moment.
                    self._process = await self._spawn_server()
                await SystemClock().sleep(0.05)

    async def _spawn_server(self) -> asyncio.subprocess.Process:
        return await _spawn(
            "postgres", "-D", str(self._folder), "-h", "127.0.0.1", "-p", str(self.port), "-k", str(self._folder),
            *("-c", "fsync=off", "-c", "shared_buffers=16MB", "-c", "max_connections=50"),
        )  # fmt: skip

    async def stop(self) -> None:
        """Kill it, as a power cut would; does nothing when it is not running."""
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
            await self._process.wait()
            # Its children notice its end a moment later; then port and data are free.
            async with asyncio.timeout(READY_TIMEOUT_S):
                while await (await _spawn("pg_ctl", "status", "-D", str(self._folder))).wait() == 0:
                    await SystemClock().sleep(0.05)

    async def save(self) -> None:
        """Keep a copy of all its data; it is stopped meanwhile."""
        await self.stop()
        await _copy(self._folder, self._saved)
        await self.start()

    async def restore(self) -> None:
        """Restore the copy, without later changes, like an old dump."""
        await self.stop()
        shutil.rmtree(self._folder)
        await _copy(self._saved, self._folder)
        await self.start()

    @property
    def _saved(self) -> Path:
        return self._folder.with_name("saved")


async def _copy(folder: Path, to: Path) -> None:
    copying = await asyncio.create_subprocess_exec("cp", "-a", str(folder), str(to))
    assert await copying.wait() == 0, "cp failed"


def _new_folder() -> Path:
    """A folder of the server's user."""
    # Not below pytest's folder, which the server's user cannot enter.
    folder = Path(tempfile.mkdtemp(prefix="ortoo-postgres-"))
    if os.geteuid() == 0:
        owner = pwd.getpwnam(USER)
        os.chown(folder, owner.pw_uid, owner.pw_gid)
    return folder


async def _empty_data() -> Path:
    """The data folder of a server without databases. `initdb` takes a second of processor time, a copy a tenth."""
    if not _made:
        data = _new_folder() / "data"
        made = await _spawn("initdb", "-D", str(data), "-U", "postgres", "--auth=trust", "--no-sync", "--encoding=utf8")
        assert await made.wait() == 0, "initdb failed"
        _made.append(data)
    return _made[0]


@atexit.register
def _leave_no_data() -> None:
    for data in _made:
        shutil.rmtree(data.parent, ignore_errors=True)


@contextlib.asynccontextmanager
async def postgres() -> AsyncIterator[Postgres]:
    """An empty database cluster that runs within the block."""
    folder = _new_folder()
    data = folder / "data"
    await _copy(await _empty_data(), data)
    server = Postgres(data, free_port())
    try:
        await server.start()
        yield server
    finally:
        await server.stop()
        shutil.rmtree(folder, ignore_errors=True)


async def _spawn(program: str, *arguments: str) -> asyncio.subprocess.Process:
    spec = importlib.util.find_spec("pgserver")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    path = Path(next(iter(spec.submodule_search_locations))) / "pginstall" / "bin" / program
    # `setpriv` drops the rights: forked children of a process with gRPC threads may not run Python.
    dropped = ("setpriv", f"--reuid={USER}", "--clear-groups", "--") if os.geteuid() == 0 else ()
    return await asyncio.create_subprocess_exec(
        *dropped,
        str(path),
        *arguments,
        cwd="/",
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
