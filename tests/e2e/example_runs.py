"""Runs the programs of examples/ as their users do: as processes that know only the address of a cluster."""

import asyncio
import contextlib
import signal
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

from ortoo.verification.servers import command
from tests.repo.tree import ROOT

EXAMPLES = ROOT / "examples"
TIMEOUT_S = 120.0


@dataclass
class Example:
    """One folder of examples, with the address of a cluster and the variables of its programs."""

    address: str
    folder: Path = EXAMPLES
    environ: dict[str, str] = field(default_factory=dict)

    async def _spawn(self, *arguments: str) -> asyncio.subprocess.Process:
        python = {"PYTHONDONTWRITEBYTECODE": "1", "PYTHONUNBUFFERED": "1"}
        return await asyncio.create_subprocess_exec(
            sys.executable,
            *arguments,
            cwd=self.folder,
            env=command.environ(self.address) | python | self.environ,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )

    async def run(self, *arguments: str, exit_code: int = 0) -> str:
        """Run Python with `arguments` to its end; returns what it printed. Errors: AssertionError, TimeoutError."""
        process = await self._spawn(*arguments)
        try:
            async with asyncio.timeout(TIMEOUT_S):
                printed, _ = await process.communicate()
        finally:
            await _kill(process)
        assert process.returncode == exit_code, printed.decode()
        return printed.decode()

    @contextlib.asynccontextmanager
    async def running(self, *arguments: str) -> AsyncIterator["RunningExample"]:
        """Run Python with `arguments` until the block ends; then it is killed unless it has ended."""
        process = await self._spawn(*arguments)
        try:
            yield RunningExample(process)
        finally:
            await _kill(process)


class RunningExample:
    """A program that runs."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        """Its output is a pipe."""
        self._process = process
        self.printed = ""

    async def until(self, *texts: str) -> None:
        """Wait until it has printed each of `texts`. Errors: AssertionError with its output, at its end or in vain."""
        assert self._process.stdout is not None
        try:
            async with asyncio.timeout(TIMEOUT_S):
                while not all(text in self.printed for text in texts):
                    line = await self._process.stdout.readline()
                    assert line, f"ended before it printed {texts}:\n{self.printed}"
                    self.printed += line.decode()
        except TimeoutError:
            raise AssertionError(f"did not print {texts}:\n{self.printed}") from None

    async def stop(self) -> int:
        """Stop it by SIGTERM; returns its exit code."""
        self._process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(TIMEOUT_S):
            printed, _ = await self._process.communicate()
        self.printed += printed.decode()
        assert self._process.returncode is not None
        return self._process.returncode

    async def kill(self) -> None:
        """Kill it, as `kill -9` does."""
        await _kill(self._process)


async def _kill(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        process.kill()
    await process.wait()
