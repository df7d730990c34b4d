"""Every flood by unauthenticated clients against every role, under the memory limits of the chart, and its cost.

`python -m tests.hostile.strangers --scale 1`

Real processes, each in a control group with the chart's limit, if this machine permits one. A flood must not end the
process, health checks continue, and the memory is released within a minute.
"""

import argparse
import asyncio
import json
import sys
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import yaml  # type: ignore[import-untyped]

from ortoo.common.process.clock import SystemClock
from ortoo.verification.forks.spawning import forking
from ortoo.verification.servers.processes import ProcessCluster, RoleProcess, process_cluster
from tests.hostile.floods import FLOODS, Target, resets, silent_checks

CHART = Path(__file__).parents[2] / "deploy" / "k8s" / "chart" / "values.yaml"
METHODS = {
    "namesrv": "/ortoo.v1.NameService/AdoptTopics",
    "enode": "/ortoo.v1.EnodeService/ReleaseLocks",
    "snode": "/apache.rocketmq.v2.MessagingService/SendMessage",
}
"""The method to flood each role with: one with a list in field 1 of its request."""
MIB = 1 << 20
BACK_S = 60.0
FAILED_CHECKS_PERCENT = 20
"""The share of health checks that may fail. More may fail while a flood of health checks arrives. While more than a
thousand calls of a method wait, gRPC's core rejects some at random, from any client."""
RECOVERED_S = 10.0
"""The time after a flood in which health checks may fail; the chart's liveness probe needs six times as long."""
BACK_MIB = 64.0
"""The resident memory above the initial one that may remain after a flood."""
NEEDS_LIMIT = ("halves",)
"""Floods that only the process's resident memory shows, and so only its limit stops."""
CHECKS_AFTER = 3
"""Consecutive health checks to answer after a flood before its peak is read, so that the last requests are included."""


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of one flood for one process."""

    role: str
    flood: str
    peak_mib: float
    limit_mib: float
    is_alive: bool
    checks: int
    slowest_check_ms: float
    failed_checks: list[str]
    recovered_s: float
    """The time from the flood until CHECKS_AFTER consecutive health checks were answered."""
    open_connections: int
    """Connections of the flood that were open at its end."""

    def broken(self) -> list[str]:
        """The broken promises."""
        what = f"{self.role}, {self.flood}: "
        if not self.is_alive:
            return [what + f"the process ended at {self.peak_mib:.0f} MiB"]
        said = []
        if self.recovered_s > RECOVERED_S:
            said.append(f"{what}health checks failed for {self.recovered_s:.0f} s after it")
        if (
            self.flood != silent_checks.__name__
            and len(self.failed_checks) > FAILED_CHECKS_PERCENT * self.checks // 100
        ):
            said.append(
                f"{what}{len(self.failed_checks)} of {self.checks} health checks failed: {self.failed_checks[0]}"
            )
        if self.flood == resets.__name__ and self.open_connections:
            said.append(what + "the connection is still open")
        if self.peak_mib > self.limit_mib:
            said.append(what + f"it grew to {self.peak_mib:.0f} of {self.limit_mib:.0f} MiB")
        return said


def chart_limits() -> dict[str, int]:
    """The memory limit of each role in the chart, in bytes."""
    values = yaml.safe_load(CHART.read_text())
    units = {"Mi": 1 << 20, "Gi": 1 << 30}
    limits = {role: values[role]["resources"]["limits"]["memory"] for role in METHODS}
    return {role: int(limit[:-2]) * units[limit[-2:]] for role, limit in limits.items()}


def resident_mib(role: RoleProcess, field: str = "VmRSS") -> float:
    """Current resident memory, or its peak (VmHWM); 0 for a process that has ended."""
    try:
        status = Path(f"/proc/{role.pid}/status").read_text()
    except OSError:
        return 0.0
    return next((int(line.split()[1]) / 1024 for line in status.splitlines() if line.startswith(field)), 0.0)


def forget_peak(role: RoleProcess) -> None:
    """Reset VmHWM to the current resident memory."""
    Path(f"/proc/{role.pid}/clear_refs").write_text("5")


class Prober:
    """Health checks by another process, so that floods take no time from the measurement."""

    def __init__(self) -> None:
        self.took_ms: list[float] = []
        self.errors: list[str] = []
        self.in_a_row = 0
        """Checks answered since the last failed one."""

    @asynccontextmanager
    async def asking(self, address: str) -> AsyncIterator[None]:
        """Send checks during the block."""
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tests.hostile.prober", address, stdout=asyncio.subprocess.PIPE
        )
        listening = asyncio.get_running_loop().create_task(self._listen(process))
        try:
            yield
        finally:
            process.kill()
            await process.wait()
            await listening

    async def _listen(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        async for line in process.stdout:
            if line.endswith(b"\n"):
                said = json.loads(line)
                self.took_ms.append(said["took_ms"])
                self.errors += [said["error"]] if said["error"] else []
                self.in_a_row = 0 if said["error"] else self.in_a_row + 1


async def flood(role: RoleProcess, name: str, limit_bytes: int, scale: float) -> Cost:
    """Flood a process and measure its cost."""
    forget_peak(role)
    prober = Prober()
    async with prober.asking(role.address):
        strangers = await FLOODS[name](Target(role.address, METHODS[role.role]), scale)
        prober.in_a_row, clock = 0, SystemClock()
        sent_s = clock.monotonic_s()
        while role.alive and prober.in_a_row < CHECKS_AFTER and clock.monotonic_s() < sent_s + BACK_S:
            await clock.sleep(0.05)
        recovered_s = clock.monotonic_s() - sent_s
        peak_mib = resident_mib(role, "VmHWM")
        open_connections = sum(stranger.is_open for stranger in strangers)
        for stranger in strangers:
            await stranger.close()
    return Cost(
        role=role.role,
        flood=name,
        peak_mib=round(peak_mib, 1),
        limit_mib=limit_bytes / MIB,
        is_alive=role.alive,
        checks=len(prober.took_ms),
        slowest_check_ms=round(max(prober.took_ms, default=0.0), 1),
        failed_checks=prober.errors,
        recovered_s=round(recovered_s, 1),
        open_connections=open_connections,
    )


async def returned(role: RoleProcess, first_mib: float) -> tuple[float, float]:
    """Wait until the memory of a process is released; resident memory then, and seconds waited."""
    clock = SystemClock()
    began_s = clock.monotonic_s()
    while (mib := resident_mib(role)) > first_mib + BACK_MIB and clock.monotonic_s() - began_s <= BACK_S:
        await clock.sleep(0.2)
    return round(mib, 1), round(clock.monotonic_s() - began_s, 1)


@asynccontextmanager
async def limited_cluster(folder: Path, transport: str = "") -> AsyncIterator[ProcessCluster]:
    """A cluster whose processes have the chart's memory limits, each started by exec.

    Where no control group can be made they have the same budget without the limit. `transport` is that setting of every
    process; empty = its default.
    """
    limits = chart_limits()
    environ = {role: {"LOG_LEVEL": "warning", "MEMORY_BUDGET_BYTES": str(limits[role] // 2)} for role in METHODS}
    environ["enode"] |= {"STORE_SEGMENT_BYTES": str(4 << 20), "STORE_HEADROOM_BYTES": "0"}
    with forking(wanted=False):  # a forked process has unneeded resident memory
        async with process_cluster(folder, environ=environ, memory_bytes=limits, transport=transport) as cluster:
            yield cluster


async def flooded(
    folder: Path, names: Sequence[str], scale: float, *, each: bool, transport: str = ""
) -> tuple[list[Cost], list[str]]:
    """Every flood against every role; the costs and the broken promises.

    The release of memory is awaited after `each` flood, or once at the end.
    """
    limits, costs, broken = chart_limits(), list[Cost](), list[str]()
    async with limited_cluster(folder, transport) as cluster:
        first = {role: resident_mib(role) for role in cluster.roles}
        if cluster.snode.group is None:
            names = [name for name in names if name not in NEEDS_LIMIT]

        async def look(flood_name: str) -> None:
            for role in cluster.roles:
                mib, seconds = await returned(role, first[role])
                what = f"{role.role}: {mib:.0f} MiB {seconds:.0f} s after {flood_name}, {first[role]:.0f} at first"
                sys.stderr.write(what + "\n")
                if seconds > BACK_S:
                    broken.append(what)

        for name in names:
            for role in cluster.roles:
                cost = await flood(role, name, limits[role.role], scale)
                sys.stderr.write(json.dumps(asdict(cost)) + "\n")
                costs.append(cost)
                if not role.alive:
                    await role.start()
            if each:
                await look(name)
        if not each:
            await look("all floods")
    return costs, [line for cost in costs for line in cost.broken()] + broken


def main() -> int:
    """Run from the command line; 1 when a promise is broken."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--scale", type=float, default=1.0, help="size of each flood; 1 is the promised one")
    parser.add_argument("--transport", default="", help="grpc or h2; empty is the default of every process")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(FLOODS)}; none = all")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="ortoo-strangers-") as folder:
        names = chosen.names or list(FLOODS)
        running = flooded(Path(folder), names, chosen.scale, each=True, transport=chosen.transport)
        _, broken = asyncio.run(running)
    for line in broken:
        sys.stdout.write(line + "\n")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
