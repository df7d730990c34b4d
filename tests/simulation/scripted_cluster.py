"""A small simulated cluster for one script: the events that a seed once found, written as a sequence."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from ortoo.client import Client, connect
from ortoo.testing.simulation.cluster.cluster import ClusterShape, SimulatedCluster
from ortoo.testing.simulation.kernel.clock import MachineClock
from ortoo.testing.simulation.kernel.event_loop import VirtualLoop
from ortoo.testing.simulation.kernel.random_streams import RandomStreams
from ortoo.testing.simulation.world import World
from ortoo.verification.simulation.logs import simulated_logs

LIMIT_S = 900.0
"""The limit of a script; one that takes longer waits for an event that never comes."""


class ScriptedCluster:
    """The cluster, and the machine that runs the script."""

    def __init__(
        self, seed: int, shape: ClusterShape, make_loop: Callable[[RandomStreams], VirtualLoop] = VirtualLoop
    ) -> None:
        self.world = World(seed, name_servers=shape.name_servers, make_loop=make_loop)
        self.cluster = SimulatedCluster(self.world, shape)
        self.clock = MachineClock(self.world.loop, self.world.random_streams.stream("script"))

    def later(self, seconds: float, happen: Callable[[], object]) -> None:
        """Call `happen` after this virtual time, independent of the script."""
        self.world.loop.call_later(seconds, happen, context=self.world.loop.outside.context)

    @asynccontextmanager
    async def connect(self, client_id: str, first: int = 0) -> AsyncIterator[Client]:
        """A client of the cluster, which connects to the snode with the number `first`, or else to the next ones."""
        randomness = self.world.random_streams.stream(client_id)
        addresses = self.cluster.addresses[first:] + self.cluster.addresses[:first]
        async with connect(addresses, client_id=client_id, clock=self.clock, randomness=randomness) as client:
            yield client


def play(
    script: Callable[[ScriptedCluster], Awaitable[None]],
    *,
    seed: int = 1,
    shape: ClusterShape | None = None,
    prepare: Callable[[ScriptedCluster], object] = lambda stage: None,
    make_loop: Callable[[RandomStreams], VirtualLoop] = VirtualLoop,
) -> None:
    """Run a script from the cluster's start to its stop, without findings.

    `prepare` sees the stage before the cluster is started. `make_loop` makes the event loop of the run.
    """
    stage = ScriptedCluster(seed, shape or ClusterShape(enodes=1, snodes=1), make_loop)
    prepare(stage)

    async def whole() -> None:
        async with asyncio.timeout(LIMIT_S):
            await stage.cluster.start()
            await script(stage)
            await stage.cluster.stop()

    with simulated_logs(stage.world), stage.world.running():
        process = stage.world.process("script")
        stage.world.loop.run_until_complete(process.spawn("script", whole()))
        found = list(stage.world.violations.all)
    assert found == [], found  # pytest shows no values of modules that it does not rewrite
