"""How much memory a store's caches may take on this machine, or in this container."""

import dataclasses
import os
from pathlib import Path

from ortoo.enode.log.settings import StoreSettings

LIMIT_FILES = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))


def memory_bytes() -> int:
    """What this process may use: its container's limit, else the machine's memory."""
    found = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for file in LIMIT_FILES:
        try:
            found = min(found, int(file.read_text()))
        except (OSError, ValueError):  # there is no such limit
            continue
    return found


def within(settings: StoreSettings, share_percent: int, total_bytes: int) -> StoreSettings:
    """The settings with both caches made smaller, in proportion, where they would exceed their share of the memory."""
    allowed = total_bytes * share_percent // 100
    wanted = settings.recent_bytes + settings.index_bytes
    if wanted <= allowed:
        return settings
    return dataclasses.replace(
        settings,
        recent_bytes=settings.recent_bytes * allowed // wanted,
        index_bytes=settings.index_bytes * allowed // wanted,
    )
