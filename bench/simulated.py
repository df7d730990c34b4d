"""The speed of the simulated cluster: virtual seconds for each processor second."""

import argparse
import asyncio
import gc
import time
from collections.abc import Sequence

from bench.report import Figures, main
from ortoo.client import Client
from ortoo.testing.simulation.cluster.cluster import ClusterShape, SimulatedCluster
from ortoo.testing.simulation.world import World
from ortoo.verification.simulation.logs import simulated_logs
from ortoo.verification.simulation.oracle.oracle import Oracle
from ortoo.verification.simulation.run.scenarios import SCENARIOS
from ortoo.verification.simulation.workload.application import Application
from ortoo.verification.simulation.workload.pushing import push_member
from ortoo.verification.simulation.workload.scenario import Scenario

METHOD = (
    "a name server, 2 enodes, 2 snodes and 12 clients that push and pop. Loads: 4 and 50 messages a second, no "
    "messages (15 while busy), and one machine of each role with one idle client. No faults. Virtual seconds for each"
    " processor second, when everything has been running for 5 virtual seconds"
)
WARM_S = 5.0
LARGE, SMALL = ClusterShape(1, 2, 2), ClusterShape(1, 1, 1)
BUSY = ("popping", "pushing", "transacting")
"""Scenarios with twelve clients together, including the client of the benchmark."""


class Idle(Scenario):
    """Group members that receive no messages."""

    name = "idle"
    members = 0

    def build(self) -> None:
        """Create one consumer a client."""

        async def consume(application: Application, client: Client) -> None:
            await push_member(application, client, "push-idle", self.name)

        self.consumers = [self.application(f"c{n}", consume) for n in range(self.members)]


class IdleMany(Idle):
    """Twelve clients, including the one that created the topic."""

    members = 11


def measured(shape: ClusterShape, kinds: Sequence[type[Scenario]], rate_per_s: float, seconds: float) -> Figures:
    """Run it; virtual seconds for each processor second, and messages sent in each virtual second."""
    world = World(1)
    cluster, oracle = SimulatedCluster(world, shape), Oracle(world)
    scenarios = [kind(cluster, oracle, rate_per_s=rate_per_s / len(kinds)) for kind in kinds]
    figures: Figures = {}

    async def prepare(_: Application, client: Client) -> None:
        for scenario in scenarios:
            await scenario.prepare(client)
        prepared.set()
        await asyncio.Event().wait()

    async def whole() -> None:
        await cluster.start()
        Application(oracle, "operator", cluster.addresses, prepare).start()
        await prepared.wait()
        for application in [one for scenario in scenarios for one in scenario.applications]:
            application.start()
        await world.clock.sleep(WARM_S)
        sent, begun_s = len(oracle.sent), time.process_time()
        await world.clock.sleep(seconds)
        took_s = time.process_time() - begun_s
        figures["virtual_s_per_processor_s"] = round(seconds / took_s, 1)
        figures["messages_per_virtual_s"] = round((len(oracle.sent) - sent) / seconds, 1)
        figures["clients"] = 1 + sum(len(scenario.applications) for scenario in scenarios)

    prepared = asyncio.Event()
    gc.collect()
    gc.disable()  # as in a run, which collects garbage at virtual times
    with simulated_logs(world), world.running():
        world.loop.run_until_complete(world.loop.create_task(whole(), context=world.loop.outside.context))
    gc.enable()
    assert not world.violations.all, world.violations.all
    return figures


async def measure(options: argparse.Namespace) -> Figures:
    """The four loads, one after another."""
    busy = [SCENARIOS[name] for name in BUSY]
    seconds = options.seconds
    return {
        "at_4_per_s": await asyncio.to_thread(measured, LARGE, busy, 4.0, seconds),
        "at_50_per_s": await asyncio.to_thread(measured, LARGE, busy, 65.0, seconds / 3),
        "idle_12_clients": await asyncio.to_thread(measured, LARGE, [IdleMany], 1.0, seconds * 10),
        "idle_small_broker": await asyncio.to_thread(measured, SMALL, [Idle], 1.0, seconds * 30),
    }


if __name__ == "__main__":
    main("simulated", METHOD, measure, seconds=30.0)
