"""File descriptors as a budget: how many this process may have, and what each use may take of them."""

import contextlib
import errno
import os
import resource
from dataclasses import dataclass
from pathlib import Path
from typing import Final

EXHAUSTED: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})
"""The errors of an open that say nothing about the file: the process or the machine has no room for another one."""
FEW: Final = 4096
"""A process with a lower limit works, but an operator should raise it."""
RESERVED_MAX, FILES_MAX = 1024, 1024
SHARE = 8
"""The reserve gets one in so many descriptors, and so does the cache of segment files."""
RESERVED_MIN, FILES_MIN, CONNECTIONS_MIN = 64, 8, 16
PARTS_MAX: Final = 1 << 20
"""An unlimited process is treated as one with so many descriptors."""
MACOS_MAX: Final = 10_240
"""The highest soft limit that macOS accepts, although its hard one is unlimited."""
LINUX, ANYWHERE = Path("/proc/self/fd"), Path("/dev/fd")
"""Where the system lists the open descriptors of a process."""


@dataclass(frozen=True, slots=True)
class Descriptors:
    """The descriptors of a process, divided once between the uses that can grow.

    The uses cannot take from one another: connections are limited by the servers, segment files by their cache. What
    is left is the reserve, from which the process opens everything else, such as new segments and small files.
    """

    limit: int
    """The most that the process may have open."""
    roles: int = 1
    """How many roles run in the process and share it."""

    @property
    def reserve(self) -> int:
        """What connections and segment files leave for everything else."""
        return min(max(self.limit // SHARE, RESERVED_MIN), RESERVED_MAX)

    @property
    def files(self) -> int:
        """How many segment files one role may keep open for reading."""
        return max(min(self.limit // SHARE, FILES_MAX) // self.roles, FILES_MIN)

    @property
    def connections(self) -> int:
        """How many incoming connections one role may have."""
        return max((self.limit - self.reserve - self.roles * self.files) // self.roles, CONNECTIONS_MIN)

    @property
    def are_few(self) -> bool:
        """Whether the limit is lower than an operator should leave it."""
        return self.limit < FEW

    @classmethod
    def of_process(cls, *, roles: int = 1) -> "Descriptors":
        """Those of this process as it is limited now."""
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        return cls(PARTS_MAX if soft == resource.RLIM_INFINITY else soft, roles)


def raise_limit() -> Descriptors:
    """Raise the soft limit of this process to the hard one, which needs no right; its children inherit it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    for wanted in (hard, MACOS_MAX):
        if soft in (wanted, resource.RLIM_INFINITY):
            break
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            break
    return Descriptors.of_process()


def open_descriptors() -> int:
    """How many descriptors this process has open; 0 where the system does not tell."""
    with contextlib.suppress(OSError):
        # Linux 6.2 and later give the number as the folder's size, and counting so needs no descriptor.
        if count := LINUX.stat().st_size:
            return count
    with contextlib.suppress(OSError):
        return len(os.listdir(ANYWHERE)) - 1
    return 0
