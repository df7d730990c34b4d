"""A cluster: its machines, and the order of their start."""

import asyncio
from dataclasses import dataclass

from ortoo.testing.simulation.cluster.roles import (
    EnodeMachine,
    NamesrvMachine,
    ReplicaMachine,
    RoleMachine,
    SnodeMachine,
)
from ortoo.testing.simulation.world import World

PORT = 8000


@dataclass(frozen=True, slots=True)
class ClusterShape:
    """The number of machines of each role."""

    name_servers: int = 1
    enodes: int = 2
    snodes: int = 2
    replicas: int = 1
    """Replicas of each enode."""


class SimulatedCluster:
    """Name servers, enodes and snodes."""

    def __init__(self, world: World, shape: ClusterShape) -> None:
        """All machines, switched off."""
        self.world = world
        self.shape = shape
        addresses = [f"10.0.1.{number + 1}:{PORT}" for number in range(shape.name_servers)]
        known = ";".join(addresses)
        self.name_servers = [
            NamesrvMachine(world, f"namesrv-{n}", address, known) for n, address in enumerate(addresses)
        ]
        self.enodes = [
            EnodeMachine(world, f"enode-{n}", f"10.0.2.{n + 1}:{PORT}", known)
            for n in range(shape.enodes if shape.replicas == 1 else 0)
        ]
        self.replicas = [
            ReplicaMachine(world, f"enode-{n}", number, shape.replicas, f"10.0.{4 + n}.", known)
            for n in range(shape.enodes if shape.replicas > 1 else 0)
            for number in range(1, shape.replicas + 1)
        ]
        self.snodes = [
            SnodeMachine(world, f"snode-{n}", f"10.0.3.{n + 1}:{PORT}", known, shares_membership=shape.snodes > 1)
            for n in range(shape.snodes)
        ]

    @property
    def machines(self) -> list[RoleMachine]:
        """All its machines."""
        return [*self.name_servers, *self.enodes, *self.replicas, *self.snodes]

    @property
    def stores(self) -> list[EnodeMachine]:
        """All machines that keep a log, including each replica of an enode."""
        return [*self.enodes, *self.replicas]

    @property
    def addresses(self) -> list[str]:
        """Where clients connect."""
        return [snode.address for snode in self.snodes]

    async def start(self) -> None:
        """Switch everything on, and wait until all are ready."""
        for kind in (self.name_servers, self.enodes, self.replicas, self.snodes):
            for machine in kind:
                machine.start()
            for machine in kind:
                await machine.ready.wait()

    async def stop(self) -> None:
        """Ask all of them to end, snodes first."""
        for kind in (self.snodes, self.enodes, self.replicas, self.name_servers):
            await asyncio.gather(*(machine.stop() for machine in kind))
