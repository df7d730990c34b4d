"""Start our processes: by exec, or within `forking` from a process that has imported all modules."""

import asyncio
import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ortoo.verification.forks.fork_server import PRELOADED, ForkServer
from ortoo.verification.forks.forked_process import ForkedProcess, start_forked

Spawned = asyncio.subprocess.Process | ForkedProcess
_servers: dict[tuple[str, ...], ForkServer] = {}
"""Fork servers by the modules that they have imported."""
_wanted: list[bool] = [False]


@contextlib.contextmanager
def forking(*, wanted: bool = True) -> Iterator[None]:
    """Fork where possible within the block. With `wanted=False` use exec, for tests of the start itself."""
    before, _wanted[0] = _wanted[0], wanted
    try:
        yield
    finally:
        _wanted[0] = before


def end_server() -> None:
    """End the fork servers that were started."""
    while _servers:
        _servers.popitem()[1].close()


async def spawn(
    *words: str, env: Mapping[str, str], stdin: int, stdout: int, stderr: Any, preloaded: Sequence[str] = PRELOADED
) -> Spawned:
    """Like `asyncio.create_subprocess_exec`; a forked process has imported `preloaded`."""
    if _wanted[0]:
        server = _servers.get(tuple(preloaded))
        if server is None:
            server = _servers[tuple(preloaded)] = ForkServer(preloaded)
        if server.accepts(words):
            return await start_forked(server, *words, env=env, stdin=stdin, stdout=stdout, stderr=stderr)
    return await asyncio.create_subprocess_exec(*words, env=env, stdin=stdin, stdout=stdout, stderr=stderr)


async def outcome(*words: str, env: Mapping[str, str] | None = None) -> tuple[int, str, str]:
    """Run a program to its end: exit code, standard output, standard error. Without `env` it has this process's own."""
    process = await spawn(
        *words,
        env=os.environ if env is None else env,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, error = await process.communicate()
    assert process.returncode is not None
    return process.returncode, out.decode(), error.decode()
