"""A load program in a separate process: commands in, one a line, figures out.

It answers with the line `begin` when counting starts and the line `end` with the figures, or with `failed` and the
error. The time that a consumer takes to close is not counted: `stop` comes before it. Other lines are no answers,
because a Java machine prints its warnings among them.
"""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from bench.peers import jars
from bench.peers.servers import Servers, at_home, dying_with_parent, end
from bench.report import Figures

ANSWER_TIMEOUT_S = 1_200.0
"""Long, because a broker that flushes each message needs minutes for a load of 30 s that is faster than its disk."""


class LoadFailed(Exception):
    """The program could not execute its command; the message has the program's error."""


class Load:
    """A running load program."""

    def __init__(self, process: asyncio.subprocess.Process, said: Path) -> None:
        """Output of the process other than answers goes to the file `said`."""
        self._process = process
        self._said = said
        self._command = "start"

    @property
    def process_id(self) -> int:
        """The program's process id."""
        return self._process.pid

    async def run(self, *words: object, servers: Servers | None = None) -> Figures:
        """Execute one command; its figures, with the servers' processor time a message if they are given.

        Errors: LoadFailed.
        """
        assert self._process.stdin is not None
        self._command = " ".join(map(str, words))
        self._process.stdin.write(f"{self._command}\n".encode())
        return await self.answer(servers)

    async def answer(self, servers: Servers | None = None) -> Figures:
        """The answer to the previous command. Errors: LoadFailed."""
        try:
            async with asyncio.timeout(ANSWER_TIMEOUT_S):
                return await self._answer(servers)
        except TimeoutError as error:
            raise LoadFailed(f"no answer to `{self._command}` within {ANSWER_TIMEOUT_S:g} s") from error

    async def _answer(self, servers: Servers | None) -> Figures:
        assert self._process.stdout is not None
        before: dict[str, float] = {}
        after: dict[str, float] = {}
        async for line in self._process.stdout:
            kind, _, rest = line.decode().strip().partition(" ")
            if kind == "begin" and servers is not None:
                before = servers.cpu_s()
            elif kind == "stop" and servers is not None:
                after = servers.cpu_s()
            elif kind == "end":
                figures: Figures = json.loads(rest)
                if before and servers is not None:
                    figures["cpu_us"] = _cpu_us(before, after or servers.cpu_s(), figures["messages"])
                return figures
            elif kind == "failed":
                raise LoadFailed(rest)
        raise LoadFailed(f"the program ended. Its output: {self._said.read_text(errors='replace')[-2000:]}")


def _cpu_us(before: dict[str, float], after: dict[str, float], messages: int) -> dict[str, float]:
    """Processor microseconds a message in each server."""
    return {name: round((after[name] - before[name]) / max(1, messages) * 1e6, 2) for name in before}


@asynccontextmanager
async def java_load(folder: Path, body_bytes: int) -> AsyncIterator[Load]:
    """The official Java client of RocketMQ, as bench/peers/java/Load.java drives it. Errors: NotHere."""
    words = ("java", "-Xmx512m", *at_home(folder), "-cp", jars.load_program(), "Load", str(body_bytes))
    async with _running(folder, words) as load:
        yield load


KEPT_BUFFERS = {"MALLOC_TRIM_THRESHOLD_": str(32 << 20), "MALLOC_MMAP_THRESHOLD_": str(32 << 20)}
"""Variables of the C library with which a program keeps freed buffers, as docs/programs.md advises."""


@asynccontextmanager
async def python_load(folder: Path, module: str, body_bytes: int) -> AsyncIterator[Load]:
    """A module of this package: `python_client` or `official_python`. It keeps freed buffers, whatever it measures."""
    words = (sys.executable, "-m", f"bench.peers.{module}", str(body_bytes))
    async with _running(folder, words, KEPT_BUFFERS) as load:
        yield load


@asynccontextmanager
async def _running(folder: Path, words: Sequence[str], environ: Mapping[str, str] | None = None) -> AsyncIterator[Load]:
    said = folder / "load.out"
    with said.open("ab") as log:
        process = await asyncio.create_subprocess_exec(
            *dying_with_parent(*words),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=log,
            env={**os.environ, **(environ or {})},
        )
    try:
        load = Load(process, said)
        await load.answer()
        yield load
    finally:
        await end(process)
