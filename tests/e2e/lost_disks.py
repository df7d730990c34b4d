"""Destroy the disk of a replica at random times, leader and follower in turn, under full load; then audit.

    python -m tests.e2e.lost_disks --rounds 20 --seed 1

One enode of three replicas under the workload of simulated runs:

* sends of both protocols, with dedup ids, in message groups, and batches resent long after they were acknowledged
* pushed and pulled groups with their offsets
* pops that are acknowledged, released with a delay, renewed or left alone
* delayed messages, some recalled
* transactions that are committed, rolled back or left open
* dead letters

In each round a replica is killed and its folder removed. Then an empty one is added and the old one removed, as an
operator does. After the last round the model of the simulation finds what was lost, doubled, early or taken back. The
same seed makes the same choices, but their effects differ. The exit code is 1 when a guarantee was broken.
"""

import argparse
import asyncio
import contextlib
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import cast

from ortoo.client import Client, OrtooError, connect
from ortoo.common.logs import logger as logs
from ortoo.common.process.randomness import Randomness
from ortoo.testing.simulation.cluster.cluster import SimulatedCluster
from ortoo.verification.servers.processes import ProcessCluster
from ortoo.verification.servers.scrape import scraped
from ortoo.verification.simulation.oracle.oracle import Oracle
from ortoo.verification.simulation.real_world import real_world
from ortoo.verification.simulation.run.scenarios import SCENARIOS
from ortoo.verification.simulation.workload.application import Application
from ortoo.verification.simulation.workload.scenario import Scenario
from tests.e2e.drill import run_drill, say
from tests.e2e.repeating import Repeating
from tests.e2e.replica_cluster import ENODE, leading, replace_disk, replica_cluster, whole

KINDS = ("deduplicating", "delaying", "ordering", "parking", "popping", "pulling", "pushing", "rocketmq", "transacting")
LEADER, FOLLOWER = "leader", "follower"
CALM_MAX_S = 4.0
"""Longest pause between two rounds: effects on leases and timers may last into the next round."""
ROUND_S = 120.0
SETTLE_S = 180.0
STOP_S = 30.0
LOOK_S = 0.2


@dataclass(slots=True)
class LostDisks:
    """One run."""

    cluster: ProcessCluster
    oracle: Oracle
    chance: Randomness
    scenarios: list[Scenario]
    say: Callable[[str], object]
    replaced_s: list[float] = field(default_factory=list)
    """Seconds of each round, from the kill until the replica with the empty disk votes."""

    async def run(self, rounds: int) -> None:
        """Prepare, destroy disks, wait until the cluster is quiet, compare, end."""
        async with connect(self.cluster.address) as mq:
            await leading(self.cluster, mq)
            await self._prepare(mq)
            for one in self._applications:
                one.start()
            for number in range(rounds):
                async with asyncio.timeout(ROUND_S):
                    await self._round(mq, (LEADER, FOLLOWER)[number % 2])
                if self.oracle.world.violations:
                    return
            await self._stop([one for scenario in self.scenarios for one in scenario.senders])
            await whole(mq)
            if await self._settled():
                await self._compare(mq)

    async def _round(self, mq: Client, whose: str) -> None:
        await whole(mq)
        await self.oracle.world.clock.sleep(self.chance.uniform(0.0, CALM_MAX_S))
        leader = await leading(self.cluster, mq)
        followers = [one for one in self.cluster.enodes if one is not leader]
        lost = leader if whose == LEADER else followers[self.chance.below(len(followers))]
        begun_s = self._disturbed()
        await lost.kill()
        await replace_disk(mq, lost)
        self._disturbed()
        self.replaced_s.append(self.oracle.now_s() - begun_s)
        self.say(
            f"{len(self.replaced_s):3}  {lost.folder.name}, {whose}: it votes again, empty before, after "
            f"{self.replaced_s[-1]:.1f} s; {self.summary()}"
        )

    def _disturbed(self) -> float:
        """Tell the model that the enode is disturbed now, so that it expects refusals and expired leases."""
        self.oracle.disturbed(ENODE)
        self.oracle.trouble(self.oracle.now_s())
        return self.oracle.now_s()

    async def _prepare(self, mq: Client) -> None:
        while True:
            with contextlib.suppress(OrtooError):  # a new leader may not be known to all processes
                await mq.admin.ensure_topic("first", queue_count=1)
                break
            await self.oracle.world.clock.sleep(LOOK_S)
        for scenario in self.scenarios:
            await scenario.prepare(mq)

    @property
    def _applications(self) -> list[Application]:
        return [one for scenario in self.scenarios for one in scenario.applications]

    async def _settled(self) -> bool:
        """Wait until the cluster is quiet; otherwise record a finding."""
        deadline_s = self.oracle.now_s() + SETTLE_S
        findings = self.oracle.world.violations
        while unsettled := next(filter(None, (one.unsettled() for one in self.scenarios)), ""):
            if findings:
                return False
            if self.oracle.now_s() > deadline_s:
                findings.add("G2", f"{SETTLE_S:.0f} s after the last round: {unsettled}")
                return False
            await self.oracle.world.clock.sleep(LOOK_S)
        return True

    async def _compare(self, mq: Client) -> None:
        """Compare the stored messages with the model, and the states of the replicas with each other."""
        for scenario in self.scenarios:
            await scenario.check(mq)
        for one in self.cluster.enodes:
            told = await scraped(str(one.environ["METRICS_ADDRESS"]))
            if any(told["ortoo_state_differs"].values()):
                self.oracle.world.violations.add("members agree", f"the state of {one.folder.name} differs")

    async def _stop(self, applications: list[Application]) -> None:
        async with asyncio.timeout(STOP_S):
            await asyncio.gather(*(one.stop() for one in applications))

    def summary(self) -> str:
        """One line for people."""
        again = sum(one.repeated for one in self.scenarios if isinstance(one, Repeating))
        found = len(self.oracle.world.violations.all)
        return (
            f"{len(self.oracle.sent)} sent, {self.oracle.received.count} delivered, {again} batches sent again after "
            f"their acknowledgement, {found} promises broken"
        )


async def lost_disks(
    folder: Path, *, rounds: int, seed: int = 1, rate_per_s: float = 4.0, say: Callable[[str], object] = lambda _: None
) -> LostDisks:
    """Run it in `folder`, each scenario with `rate` messages a second; the result contains the findings."""
    async with replica_cluster(folder, metrics=True) as cluster:
        oracle = Oracle(real_world(seed))
        known = cast("SimulatedCluster", SimpleNamespace(addresses=[cluster.address]))
        made = [*(SCENARIOS[name] for name in KINDS), Repeating]
        scenarios: list[Scenario] = [one(known, oracle, rate_per_s=rate_per_s) for one in made]
        run = LostDisks(cluster, oracle, oracle.world.random_streams.stream("rounds"), scenarios, say)
        try:
            await run.run(rounds)
        finally:
            await run._stop(run._applications)
    return run


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1, help="makes the choices")
    parser.add_argument("--rate", type=float, default=4.0, help="messages a second of each kind of use")
    given = parser.parse_args()
    logs.configure(level="error")

    with tempfile.TemporaryDirectory(prefix="ortoo-disks-") as folder:
        run = run_drill(lost_disks(Path(folder), rounds=given.rounds, seed=given.seed, rate_per_s=given.rate, say=say))
    found = run.oracle.world.violations.all
    for finding in found:
        say(str(finding))
    say(f"{len(run.replaced_s)} disks destroyed; {run.summary()}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
