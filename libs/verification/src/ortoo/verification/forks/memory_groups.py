"""Control groups of the kernel, which limit the memory of a process as a container does."""

import contextlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

CGROUPS = Path("/sys/fs/cgroup")
LIMITS = (("memory", "memory.limit_in_bytes"), ("", "memory.max"))
"""For versions 1 and 2: the folder of the groups, and the file of their limit."""


@contextlib.contextmanager
def memory_group(name: str, limit_bytes: int) -> Iterator[Path | None]:
    """A group of this name for the block; None without permission. At the end it must have no process."""
    group = _made(f"ortoo-{os.getpid()}-{name}", limit_bytes)
    try:
        yield group
    finally:
        if group is not None:
            group.rmdir()


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
