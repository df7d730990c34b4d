"""All floods by unauthenticated clients at once, against every role within the chart's limits, beside an honest client.

`python -m tests.hostile.mixed --minutes 10`, or `--minutes 1 --each` to run each flood alone before all together.

These are requests that inflate to millions of elements, streams of health checks, and calls with long headers or
without a request. Others are rapid resets, idle connections and half-open TLS handshakes.

No role may end, no honest message may be lost or become three times slower, and each role must release the memory
within a minute. The attackers are a process of low priority.
"""

import argparse
import asyncio
import contextlib
import json
import sys
import tempfile
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ortoo.client import connect
from ortoo.common.process.clock import SystemClock
from ortoo.verification.servers.processes import RoleProcess
from tests.hostile.attacks import half_open
from tests.hostile.floods import FLOODS, Target, empty_elements, halves
from tests.hostile.siege import CALM_S, CALM_TOPIC, Honest, Verdict
from tests.hostile.strangers import (
    BACK_S,
    METHODS,
    chart_limits,
    forget_peak,
    limited_cluster,
    resident_mib,
    returned,
)

HOLD_S, PAUSE_S = 2.0, 5.0
"""The time for which the connections of a flood stay open, and the pause before it is repeated."""
IDLE = 1_000
"""Idle connections to each role, at scale 1."""
NAMES = [name for name in FLOODS if name != halves.__name__]
"""`halves` takes 8 MiB for each request from the attacker, too; `strangers` has it."""
MORE_METHODS = {
    "snode": ("/ortoo.v1.ConsumerService/CommitOffsets", "/ortoo.v1.ConsumerService/Ack"),
    "enode": ("/ortoo.v1.EnodeService/RetryMessages",),
}
"""Further methods with lists, for the requests that inflate."""
CLOCK = SystemClock()


@dataclass
class MixedVerdict(Verdict):
    """The results of the floods."""

    floods: int = 0
    """The floods that were sent."""
    peak_mib: dict[str, float] = field(default_factory=dict)
    limit_mib: dict[str, float] = field(default_factory=dict)
    first_mib: dict[str, float] = field(default_factory=dict)
    """Resident memory before the attack."""
    returned_s: dict[str, float] = field(default_factory=dict)
    """The time after the attack until the memory was released."""

    def faults(self) -> list[str]:
        """The broken promises."""
        said = self.broken(memory_mib_max=float("inf"))
        said += [
            f"{role} grew to {mib:.0f} of {self.limit_mib[role]:.0f} MiB"
            for role, mib in self.peak_mib.items()
            if mib > self.limit_mib[role]
        ]
        said += [
            f"{role} still had {self.memory_mib[role]:.0f} MiB after a minute, {self.first_mib[role]:.0f} at first"
            for role, seconds in self.returned_s.items()
            if seconds > BACK_S
        ]
        if not self.floods:
            said.append("no flood was sent")
        return said


async def attack(targets: Sequence[Target], seconds: float, scale: float, names: Sequence[str]) -> int:
    """Send all floods to all targets at once, again and again; returns their number."""
    end_s, sent = CLOCK.monotonic_s() + seconds, 0

    async def repeat(name: str, target: Target) -> None:
        nonlocal sent
        while CLOCK.monotonic_s() < end_s:
            # A process that is full refuses connections. That is one of the ways in which it survives.
            with contextlib.suppress(OSError, ValueError):
                strangers = await FLOODS[name](target, scale)
                sent += 1
                await CLOCK.sleep(HOLD_S)
                for stranger in strangers:
                    await stranger.close()
            await CLOCK.sleep(PAUSE_S)

    addresses = sorted({target.address for target in targets})
    async with half_open(addresses, round(IDLE * scale) * len(addresses)), asyncio.TaskGroup() as group:
        for target in targets:
            is_first = target.method in METHODS.values()
            for name in names if is_first else [one for one in names if one == empty_elements.__name__]:
                group.create_task(repeat(name, target))
    return sent


@contextlib.asynccontextmanager
async def _attackers(
    roles: Sequence[RoleProcess], seconds: float, scale: float, names: Sequence[str]
) -> AsyncIterator[asyncio.Task[bytes]]:
    """The attackers' process during the block; the task returns its output."""
    named = [f"{role.role}={role.address}" for role in roles]
    command = (*("nice", "-n", "10"), sys.executable, "-m", "tests.hostile.mixed", "--attack", *named)
    options = ("--minutes", str(seconds / 60), "--scale", str(scale), "--floods", *names)
    process = await asyncio.create_subprocess_exec(*command, *options, stdout=asyncio.subprocess.PIPE)
    assert process.stdout is not None
    reading = asyncio.get_running_loop().create_task(process.stdout.read())
    try:
        yield reading
    finally:
        if process.returncode is None and not reading.done():
            process.kill()
        await process.wait()
        await reading


async def flooded_at_once(
    folder: Path,
    *,
    seconds: float,
    scale: float,
    calm_s: float = CALM_S,
    names: Sequence[str] = NAMES,
    transport: str = "",
) -> MixedVerdict:
    """Run the floods for this time."""
    verdict, limits = MixedVerdict(), chart_limits()
    async with limited_cluster(folder, transport) as cluster:
        named = {role: role.folder.name for role in cluster.roles}
        async with connect(cluster.address) as client:
            await client.admin.create_topic(CALM_TOPIC, queue_count=2)
        honest = await Honest.start(cluster.address)
        listening = asyncio.get_running_loop().create_task(honest.listen())
        await CLOCK.sleep(calm_s)
        verdict.calm_p99_ms, _, calm_stalled = honest.p99_ms()
        first = {role: resident_mib(role) for role in cluster.roles}
        for role in cluster.roles:
            forget_peak(role)
        async with _attackers(cluster.roles, seconds, scale, names) as attackers:
            verdict.floods = int(await attackers or b"0")
        verdict.siege_p99_ms, verdict.late_ms, siege_stalled = honest.p99_ms()
        verdict.stalled = f"{calm_stalled} before, {siege_stalled} during the floods"
        verdict.dead = [named[role] for role in cluster.roles if not role.alive]
        for role in cluster.roles:
            name = named[role]
            verdict.first_mib[name] = round(first[role], 1)
            verdict.peak_mib[name] = round(resident_mib(role, "VmHWM"), 1)
            verdict.limit_mib[name] = limits[role.role] / (1 << 20)
            verdict.memory_mib[name], verdict.returned_s[name] = await returned(role, first[role])
        await honest.finish()
        await listening
        verdict.honest_errors, verdict.missing = honest.errors, honest.missing
        verdict.log_bytes = {named[role]: len(role.log_text()) for role in cluster.roles}
    return verdict


def main() -> int:
    """Run from the command line; 1 when a promise is broken."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--scale", type=float, default=1.0, help="size of each flood; 1 is the promised one")
    parser.add_argument("--floods", nargs="+", default=NAMES, choices=NAMES, help="the floods; all by default")
    parser.add_argument("--transport", default="", help="grpc or h2; empty is the default of every process")
    parser.add_argument("--each", action="store_true", help="first each flood alone, then all together")
    parser.add_argument("--attack", nargs="+", metavar="ROLE=ADDRESS", help="only attack these processes")
    chosen = parser.parse_args()
    if chosen.attack:
        targets = []
        for role, _, address in (one.partition("=") for one in chosen.attack):
            targets += [Target(address, method) for method in (METHODS[role], *MORE_METHODS.get(role, ()))]
        sys.stdout.write(str(asyncio.run(attack(targets, chosen.minutes * 60, chosen.scale, chosen.floods))))
        return 0
    seconds, scale, found = chosen.minutes * 60, chosen.scale, list[str]()
    for names in [*([[name] for name in chosen.floods] if chosen.each else []), chosen.floods]:
        with tempfile.TemporaryDirectory(prefix="ortoo-mixed-") as folder:
            running = flooded_at_once(
                Path(folder), seconds=seconds, scale=scale, names=names, transport=chosen.transport
            )
            verdict = asyncio.run(running)
        sys.stdout.write(json.dumps({"names": names} | vars(verdict) | {"codes": {}}) + "\n")
        found += [f"{', '.join(names)}: {line}" for line in verdict.faults()]
    for line in found:
        sys.stdout.write(line + "\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
