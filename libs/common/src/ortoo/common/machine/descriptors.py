"""The budget of file descriptors: the limit of this process, and the share of each purpose."""

import contextlib
import errno
import os
import resource
from dataclasses import dataclass
from pathlib import Path
from typing import Final

EXHAUSTED: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})
"""The errors of an open that do not concern the file: the process or the machine cannot open any further file."""
FEW: Final = 4096
"""A process with a lower limit works, but the operator should raise it."""
RESERVED_MAX, FILES_MAX = 1024, 1024
SHARE = 8
"""The reserve and the cache of segment files each get this fraction of the descriptors: one in SHARE."""
RESERVED_MIN, FILES_MIN, CONNECTIONS_MIN = 64, 8, 16
PARTS_MAX: Final = 1 << 20
"""The number of descriptors that is assumed for an unlimited process."""
MACOS_MAX: Final = 10_240
"""The highest soft limit that macOS accepts, although its hard limit is unlimited."""
LINUX, ANYWHERE = Path("/proc/self/fd"), Path("/dev/fd")
"""The folders in which the system lists the open descriptors of a process."""


@dataclass(frozen=True, slots=True)
class Descriptors:
    """The descriptors of a process, divided at the start between the purposes whose use can grow.

    The servers limit connections, and the cache limits segment files, so that neither can take the other's share. The
    rest is the reserve, from which the process opens everything else, such as new segments and small files.
    """

    limit: int
    """The maximum number of open descriptors of the process."""
    roles: int = 1
    """The number of roles in the process, which share the limit."""

    @property
    def reserve(self) -> int:
        """The descriptors that connections and segment files leave for everything else."""
        return min(max(self.limit // SHARE, RESERVED_MIN), RESERVED_MAX)

    @property
    def files(self) -> int:
        """The maximum number of segment files that one role keeps open for reading."""
        return max(min(self.limit // SHARE, FILES_MAX) // self.roles, FILES_MIN)

    @property
    def connections(self) -> int:
        """The maximum number of incoming connections of one role."""
        return max((self.limit - self.reserve - self.roles * self.files) // self.roles, CONNECTIONS_MIN)

    @property
    def are_few(self) -> bool:
        """Whether the limit is lower than recommended."""
        return self.limit < FEW

    @classmethod
    def of_process(cls, *, roles: int = 1) -> "Descriptors":
        """The descriptors of this process under its current limit."""
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        return cls(PARTS_MAX if soft == resource.RLIM_INFINITY else soft, roles)


def raise_limit() -> Descriptors:
    """Raise the soft limit of this process to its hard limit, which needs no privilege. Child processes inherit it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    for wanted in (hard, MACOS_MAX):
        if soft in (wanted, resource.RLIM_INFINITY):
            break
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            break
    return Descriptors.of_process()


def open_descriptors() -> int:
    """The number of open descriptors of this process; 0 where the system does not report it."""
    with contextlib.suppress(OSError):
        # Linux 6.2 and later report the number as the folder's size. Reading it needs no descriptor.
        if count := LINUX.stat().st_size:
            return count
    with contextlib.suppress(OSError):
        return len(os.listdir(ANYWHERE)) - 1
    return 0
