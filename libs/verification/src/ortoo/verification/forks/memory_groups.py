"""Control groups of the kernel, which limit the memory of a process as a container does."""

import contextlib
import errno
import os
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

from ortoo.common.process.clock import SystemClock

CGROUPS = Path("/sys/fs/cgroup")
LIMITS = (("memory", "memory.limit_in_bytes"), ("", "memory.max"))
"""For versions 1 and 2: the folder of the groups, and the file of their limit."""
EMPTY_TIMEOUT_S = 10.0
POLL_S = 0.02


@contextlib.asynccontextmanager
async def memory_group(name: str, limit_bytes: int) -> AsyncIterator[Path | None]:
    """A group of this name for the block; None without permission.

    At the end its processes must have ended or be ending. Errors: OSError when one still runs after 10 s.
    """
    group = _made(f"ortoo-{os.getpid()}-{name}", limit_bytes)
    try:
        yield group
    finally:
        if group is not None:
            await _remove(group)


async def _remove(group: Path) -> None:
    """Wait for the processes of a group: the children of a killed role end a moment after it."""
    clock = SystemClock()
    deadline_s = clock.monotonic_s() + EMPTY_TIMEOUT_S
    while True:
        try:
            os.rmdir(group)
            return
        except OSError as error:
            if error.errno != errno.EBUSY or clock.monotonic_s() > deadline_s:
                raise
        await clock.sleep(POLL_S)


def _made(name: str, limit_bytes: int) -> Path | None:
    for folder, limit in LIMITS:
        group = CGROUPS / folder / name
        try:
            group.mkdir()
        except OSError:
            continue
        try:
            if (group / limit).exists():
                (group / limit).write_text(str(limit_bytes))
                return group
        except OSError:
            pass
        group.rmdir()
    return None


def within(group: Path, words: Sequence[str]) -> Sequence[str]:
    """The command that runs another command in a group."""
    return ("/bin/sh", "-c", 'echo $$ > "$0"/cgroup.procs && exec "$@"', str(group), *words)
