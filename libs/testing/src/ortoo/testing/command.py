"""The `ortoo` command as people run it, and `ortoo dev` as a process."""

import asyncio
import contextlib
import os
import re
import signal
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from ortoo.testing import grpcurl

TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one run of a command gave."""

    exit_code: int
    out: str
    error: str


def environ(address: str) -> dict[str, str]:
    """The environment of a terminal in which this workspace's commands are on the path."""
    paths = (str(Path(sys.executable).parent), str(grpcurl.find().parent), os.environ.get("PATH", ""))
    clean = {name: value for name, value in os.environ.items() if not name.startswith("ORTOO_")}
    return clean | {"PATH": ":".join(paths), "ORTOO_ADDRESS": address, "COLUMNS": "200", "NO_COLOR": "1"}


async def run(
    words: Sequence[str], address: str, *, until: str = "", given: bytes = b"", timeout_s: float = TIMEOUT_S
) -> Outcome:
    """Run a command to its end; with `until`, interrupt it (Ctrl-C) when that text is on its standard output.

    Errors: TimeoutError, after the process was killed.
    """
    process = await asyncio.create_subprocess_exec(
        *words,
        env=environ(address),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    out = b""
    try:
        async with asyncio.timeout(timeout_s):
            while until and until.encode() not in out and (line := await process.stdout.readline()):
                out += line
            if until and process.returncode is None:
                process.send_signal(signal.SIGINT)
            rest, error = await process.communicate(given)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode is not None
    return Outcome(process.returncode, (out + rest).decode(), error.decode())


@dataclass(slots=True)
class DevProcess:
    """A running `ortoo dev`."""

    address: str
    process: asyncio.subprocess.Process

    async def stop(self) -> int:
        """Ctrl-C; returns the exit code."""
        if self.process.returncode is None:
            self.process.send_signal(signal.SIGINT)
        async with asyncio.timeout(TIMEOUT_S):
            return await self.process.wait()

    async def kill(self) -> None:
        """SIGKILL."""
        if self.process.returncode is None:
            self.process.kill()
            await self.process.wait()


def _log_in(folder: Path) -> BinaryIO:
    folder.mkdir(parents=True, exist_ok=True)
    return (folder / "log").open("ab")


@contextlib.asynccontextmanager
async def dev_process(folder: Path, *, settings: Mapping[str, str] | None = None) -> AsyncIterator[DevProcess]:
    """Run `ortoo dev` on a free port with its data in `folder`; it is ready when the block is entered."""
    with _log_in(folder) as log:
        process = await asyncio.create_subprocess_exec(
            *("ortoo", "dev", "--listen-address", "127.0.0.1:0", "--data-dir", str(folder / "data")),
            env=environ("") | dict(settings or {}),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=log,
        )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(TIMEOUT_S):
            line = (await process.stdout.readline()).decode()
        found = re.search(r"\d+\.\d+\.\d+\.\d+:\d+", line)
        assert found, f"`ortoo dev` said {line!r}; its log: {(folder / 'log').read_text()[-2000:]}"
        dev = DevProcess(found.group(), process)
        yield dev
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
