"""CPU affinity on Linux: the load of each core, the allowed cores of this process's threads, and claims of cores."""

import contextlib
import os
import socket
import time
from collections.abc import Iterable
from pathlib import Path

from ortoo.common.machine.cores import CpuCores

PARENT_CORES = "ORTOO_PARENT_CORES"
"""The environment variable by which a pinned process passes its original cores to its child processes, which inherit
the pinning. It is not a setting."""
CLAIM_SOCKET_NAME = "\0ortoo core {}"
"""The abstract socket name that claims a core. The kernel releases it when the process ends."""
STAT, TASKS = Path("/proc/stat"), Path("/proc/self/task")


def system_cores() -> CpuCores | None:
    """The cores of this system; None where it has no CPU affinity, or does not report the load of cores."""
    if not hasattr(os, "sched_setaffinity") or not TASKS.exists():
        return None
    return cores if (cores := LinuxCores()).busy_s() else None


def restore_parent_cores() -> None:
    """Use the original cores of the parent, not only the one that it is pinned to. Call it before starting threads."""
    if text := os.environ.pop(PARENT_CORES, ""):
        _set_affinity(0, frozenset(map(int, text.split(","))))


class LinuxCores:
    """See `CpuCores`. Belongs to the main thread, which starts the child processes."""

    def __init__(self) -> None:
        """Begin without pinning."""
        self._allowed = frozenset[int]()
        """The original cores, to be restored; empty when all threads have them."""
        self._pinned: int | None = None
        self._claim: socket.socket | None = None

    def used_s(self) -> float:
        """Processor time of all threads."""
        return time.process_time()

    def allowed(self) -> frozenset[int]:
        """The cores that the main thread may use."""
        return frozenset(os.sched_getaffinity(0))

    def busy_s(self) -> dict[int, float]:
        """Includes stolen time, which the host gave to other machines. Empty where the system does not count it."""
        try:
            lines = STAT.read_text(encoding="ascii").splitlines()
        except OSError:
            return {}
        a_tick_s, found = 1 / os.sysconf("SC_CLK_TCK"), dict[int, float]()
        for line in lines[1:]:
            if not line.startswith("cpu"):
                break
            name, *ticks = line.split()
            user, nice, system, _idle, _waiting, *rest = map(int, ticks[:8])
            found[int(name[3:])] = (user + nice + system + sum(rest)) * a_tick_s
        return found

    def pin(self, core: int) -> bool:
        """Claim the core among the processes of this network namespace, and pin all threads. Errors: OSError."""
        claim = socket.socket(socket.AF_UNIX)
        try:
            claim.bind(CLAIM_SOCKET_NAME.format(core))
        except OSError:
            claim.close()
            return False
        if self._pinned is None:
            self._allowed = self._current_mask()
        try:
            os.sched_setaffinity(0, {core})
        except OSError:
            claim.close()
            _set_affinity(0, self._allowed)
            raise
        if self._claim is not None:
            self._claim.close()
        self._pinned, self._claim = core, claim
        os.environ[PARENT_CORES] = ",".join(map(str, sorted(self._allowed)))
        self._apply_to_all_threads()
        return True

    def unpin(self) -> None:
        """Restore the original cores, or keep those that another process has set meanwhile; the claim ends.

        Errors: OSError when the threads cannot be listed. `apply_to_threads` then changes them later.
        """
        if self._pinned is None or self._claim is None:
            return
        if self.allowed() != {self._pinned}:
            self._allowed = self._current_mask()
        self._pinned = None
        os.environ.pop(PARENT_CORES)
        self._claim.close()
        self._apply_to_all_threads()

    def apply_to_threads(self) -> None:
        """Set the cores of all threads again, because a thread that was being started was not listed. Errors: OSError.

        Cores that another process has set since then stay.
        """
        if self._allowed:
            self._apply_to_all_threads()
        if self._pinned is None:
            self._allowed = frozenset()

    def _apply_to_all_threads(self) -> None:
        """Set the cores of all threads, also of those that are started meanwhile."""
        cores = self._allowed if self._pinned is None else frozenset({self._pinned})
        applied: set[str] = set()
        while new := set(os.listdir(TASKS)) - applied:
            for thread in new:
                _set_affinity(int(thread), cores)
            applied |= new

    def _current_mask(self) -> frozenset[int]:
        """The cores to restore later; it lets the main thread run on every core.

        A mask that an operator chose stays. A mask of all cores of the control group becomes every core, because the
        group may get more cores.
        """
        current = self.allowed()
        _set_affinity(0, _all_cores(current))
        return _all_cores(current) if self.allowed() == current else current


def _all_cores(known: Iterable[int]) -> frozenset[int]:
    return frozenset(range(os.sysconf("SC_NPROCESSORS_CONF"))).union(known)


def _set_affinity(thread_id: int, cores: frozenset[int]) -> None:
    """Pin a thread to these cores, or to all if none of them is available; does nothing if it has ended."""
    try:
        os.sched_setaffinity(thread_id, cores)
    except ProcessLookupError:
        return
    except OSError:
        with contextlib.suppress(OSError):
            os.sched_setaffinity(thread_id, _all_cores(cores))
