"""The cores of Linux: what each has done, which of them the threads of this process may run on, and which are taken."""

import contextlib
import os
import socket
import time
from collections.abc import Iterable
from pathlib import Path

from ortoo.common.machine.cores import Cores

PARENT_CORES = "ORTOO_PARENT_CORES"
"""The variable of the environment by which a process that keeps to one core tells those that it starts, and which
inherit that, what it was given itself. It is no setting."""
CLAIM = "\0ortoo core {}"
"""The socket's name by which a core is taken: the kernel's, gone with the process that has it."""
STAT, TASKS = Path("/proc/stat"), Path("/proc/self/task")


def system_cores() -> Cores | None:
    """What this system offers; None where it does not let processes choose, or does not say what cores do."""
    if not hasattr(os, "sched_setaffinity") or not TASKS.exists():
        return None
    return cores if (cores := LinuxCores()).busy_s() else None


def use_parents_cores() -> None:
    """Use what the parent was given, and not only what it keeps to. Call it before threads are begun."""
    if text := os.environ.pop(PARENT_CORES, ""):
        _allow(0, frozenset(map(int, text.split(","))))


class LinuxCores:
    """See `Cores`. Belongs to the main thread, from which the process's own processes are started."""

    def __init__(self) -> None:
        """All cores are used, as they were before."""
        self._all = frozenset[int]()
        """What to go back to; empty when all threads have it."""
        self._core: int | None = None
        self._claim: socket.socket | None = None

    def used_s(self) -> float:
        """Processor time of all threads."""
        return time.process_time()

    def given(self) -> frozenset[int]:
        """Those of the main thread."""
        return frozenset(os.sched_getaffinity(0))

    def busy_s(self) -> dict[int, float]:
        """Also what the host gave to other machines: nobody here had it. Empty where nobody counts."""
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

    def keep_to(self, core: int) -> bool:
        """Claim the core among the processes of this network, and have all threads run there. Errors: OSError."""
        claim = socket.socket(socket.AF_UNIX)
        try:
            claim.bind(CLAIM.format(core))
        except OSError:
            claim.close()
            return False
        if self._core is None:
            self._all = self._all_of_now()
        try:
            os.sched_setaffinity(0, {core})
        except OSError:
            claim.close()
            _allow(0, self._all)
            raise
        if self._claim is not None:
            self._claim.close()
        self._core, self._claim = core, claim
        os.environ[PARENT_CORES] = ",".join(map(str, sorted(self._all)))
        self._tell()
        return True

    def use_all(self) -> None:
        """Go back to what was given, or is given now if somebody else has changed it meanwhile; the claim ends.

        Errors: OSError when the threads cannot be listed; `settle` tells them later.
        """
        if self._core is None or self._claim is None:
            return
        if self.given() != {self._core}:
            self._all = self._all_of_now()
        self._core = None
        os.environ.pop(PARENT_CORES)
        self._claim.close()
        self._tell()

    def settle(self) -> None:
        """Tell all threads again, for one that was on its way meanwhile was not listed yet. Errors: OSError.

        What somebody else chose since then is left alone.
        """
        if self._all:
            self._tell()
        if self._core is None:
            self._all = frozenset()

    def _tell(self) -> None:
        """Tell all threads, and those that one of them begins before it is told."""
        cores = self._all if self._core is None else frozenset({self._core})
        told: set[str] = set()
        while new := set(os.listdir(TASKS)) - told:
            for thread in new:
                _allow(int(thread), cores)
            told |= new

    def _all_of_now(self) -> frozenset[int]:
        """What is to be allowed again later; the main thread may run on every core then.

        A mask that somebody chose stays; one that is all that the control group allows becomes every core, for what the
        group allows may grow.
        """
        chosen = self.given()
        _allow(0, _every(chosen))
        return _every(chosen) if self.given() == chosen else chosen


def _every(known: Iterable[int]) -> frozenset[int]:
    return frozenset(range(os.sysconf("SC_NPROCESSORS_CONF"))).union(known)


def _allow(thread: int, cores: frozenset[int]) -> None:
    """Let a thread run there; wherever it may if none of these is left, and nothing if it has ended."""
    try:
        os.sched_setaffinity(thread, cores)
    except ProcessLookupError:
        return
    except OSError:
        with contextlib.suppress(OSError):
            os.sched_setaffinity(thread, _every(cores))
