"""What a process may use of the machine's memory: less than there is, where a control group says so."""

import os
from collections.abc import Iterator
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")
OF_PROCESS = Path("/proc/self/cgroup")
V1, V2 = "memory.limit_in_bytes", "memory.max"


def memory_bytes(root: Path = ROOT, of_process: Path = OF_PROCESS) -> int:
    """What this process may use: the least that any control group above it allows, else the machine's memory.

    In a container its own group is mounted at `root`; elsewhere `of_process` says which groups below that it is in.
    """
    found = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for file in _limit_files(root, of_process):
        try:
            found = min(found, int(file.read_text()))
        except (OSError, ValueError):  # there is no such limit, or it is "max"
            continue
    return found


def _limit_files(root: Path, of_process: Path) -> Iterator[Path]:
    """Of version 2 and of version 1, each from the process's group up to the root."""
    yield root / V2
    yield root / "memory" / V1
    try:
        lines = of_process.read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = (*line.split(":", 2), "", "")[:3]
        group = Path(path.lstrip("/"))
        if "memory" in controllers.split(","):
            yield from (root / "memory" / one / V1 for one in (group, *group.parents))
        elif not controllers:
            for mounted in (root, root / "unified"):
                yield from (mounted / one / V2 for one in (group, *group.parents))
