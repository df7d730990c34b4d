"""The cluster under test: three real processes with the default, durable settings, on this machine."""

import contextlib
import os
import re
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from ortoo.cli.demo.role_subprocess import RoleSubprocess


@dataclass(frozen=True, slots=True)
class Cluster:
    """The running roles."""

    namesrv: RoleSubprocess
    enode: RoleSubprocess
    snode: RoleSubprocess
    folder: Path

    @property
    def address(self) -> str:
        """Where clients connect."""
        return self.snode.address

    def memory_mib(self) -> dict[str, float]:
        """Current resident memory of each role."""
        return {role.role: memory_mib(role.process_id) for role in (self.namesrv, self.enode, self.snode)}

    def memory_peak_mib(self) -> dict[str, float]:
        """The largest resident memory so far of each role and of this process."""
        return {name: memory_peak_mib(process_id) for name, process_id in self.process_ids().items()}

    def cpu_s(self) -> dict[str, float]:
        """Processor seconds so far of each process of the path; "client" is this one."""
        return {name: cpu_s(process_id) for name, process_id in self.process_ids().items()}

    def process_ids(self) -> dict[str, int]:
        """The processes that messages pass through."""
        return {"client": os.getpid(), "snode": self.snode.process_id, "enode": self.enode.process_id}


def cpu_s(process_id: int, *, with_children: bool = False) -> float:
    """Processor seconds, user and system, of a process so far, with those of children that ended."""
    return _times_s(process_id, 0, 4 if with_children else 2)


def ended_children_s(process_id: int) -> float:
    """Processor seconds of the children of a process that ended and for which it waited."""
    return _times_s(process_id, 2, 4)


def _times_s(process_id: int, begin: int, end: int) -> float:
    """The sum of some of the times utime, stime, cutime, cstime; 0 if the process has ended."""
    try:
        fields = Path(f"/proc/{process_id}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return 0.0
    return sum(map(int, fields[11 + begin : 11 + end])) / os.sysconf("SC_CLK_TCK")


def children(process_id: int) -> list[int]:
    """The running children of a process."""
    return _by_parent().get(process_id, [])


def descendants(process_id: int) -> Iterator[int]:
    """The running children of a process, and their children, from one pass over all processes."""
    by_parent = _by_parent()
    waiting = [process_id]
    while waiting:
        found = by_parent.get(waiting.pop(), [])
        yield from found
        waiting += found


def _by_parent() -> dict[int, list[int]]:
    """The children of each process. The kernel's lists of children leave some out while others end."""
    found: dict[int, list[int]] = {}
    for file in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has just ended
            found.setdefault(int(file.read_text().rsplit(")", 1)[1].split()[1]), []).append(int(file.parent.name))
    return found


def name_of(process_id: int) -> str:
    """The command name of a process; empty when it has ended."""
    try:
        return Path(f"/proc/{process_id}/comm").read_text().strip()
    except OSError:
        return ""


def is_spark(process_id: int) -> bool:
    """Whether a process is the JVM of a Spark session."""
    return name_of(process_id) == "java" and b"org.apache.spark.deploy" in _command(process_id)


def _command(process_id: int) -> bytes:
    try:
        return Path(f"/proc/{process_id}/cmdline").read_bytes()
    except OSError:  # it has just ended
        return b""


def running_s(process_id: int) -> float:
    """Processor seconds so far of a process and of its threads that ended, from nanoseconds; `cpu_s` counts ticks."""
    return time.clock_gettime_ns((~process_id << 3) | 2) / 1e9  # the clock of another process, as Linux numbers it


def memory_mib(process_id: int) -> float:
    """Resident memory of a process, in MiB."""
    fields = Path(f"/proc/{process_id}/statm").read_text().split()
    return round(int(fields[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20, 1)


def memory_peak_mib(process_id: int) -> float:
    """The largest resident memory so far of a process."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{process_id}/status").read_text())
    assert found is not None
    return round(int(found[1]) / 1024, 1)


def cpu_us_per_message(before: dict[str, float], after: dict[str, float], messages: int) -> dict[str, float]:
    """Processor microseconds a message in each process: the figure that noise on the machine changes least."""
    return {name: round((after[name] - before[name]) / messages * 1e6, 3) for name in before}


@asynccontextmanager
async def cluster(
    folder: Path | None = None,
    *,
    snode_settings: Mapping[str, str] | None = None,
    snode_module: str = "",
    **enode_settings: str,
) -> AsyncIterator[Cluster]:
    """Start name server, enode and snode, each a process; stop them and remove their data at the end.

    `enode_settings` and `snode_settings` are environment variables without their prefix. `snode_module` runs in place
    of the snode's own module.
    """
    async with AsyncExitStack() as stack:
        if folder is None:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ortoo-bench-")))

        async def start(role: str, module: str = "", **environ: str) -> RoleSubprocess:
            assert folder is not None
            process = RoleSubprocess(role, environ, folder / f"{role}.log", module)
            stack.push_async_callback(process.stop)
            await process.start()
            return process

        namesrv = await start("namesrv", DATA_DIR=str(folder / "namesrv"))
        enode_settings |= {"DATA_DIR": str(folder / "enode"), "NAMESRV_ADDRESS": namesrv.address}
        enode = await start("enode", **enode_settings)
        snode = await start("snode", snode_module, NAMESRV_ADDRESS=namesrv.address, **(snode_settings or {}))
        yield Cluster(namesrv, enode, snode, folder)
