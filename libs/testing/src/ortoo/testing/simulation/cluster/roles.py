"""The machines of the three roles, which run the product's own code."""

import contextlib
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

from ortoo.common.process.service import Running
from ortoo.enode import app as enode_app
from ortoo.enode import settings as enode_settings
from ortoo.enode.log.settings import StoreSettings
from ortoo.namesrv import app as namesrv_app
from ortoo.namesrv import settings as namesrv_settings
from ortoo.snode import app as snode_app
from ortoo.snode import settings as snode_settings
from ortoo.testing.disks.disk_image import CrashOutcome
from ortoo.testing.disks.memory_disk import USUAL_OUTCOME
from ortoo.testing.simulation.cluster.machine import Machine
from ortoo.testing.simulation.disk.simulated_disk import MachineDisk
from ortoo.testing.simulation.world import World

STOP_GRACE_S = 1.0
CHECK_INTERVAL_MS = 4_000
"""Short, so that open transactions end within a short run."""
SEGMENT_BYTES = 1 << 13
"""Small, so that a short run rolls, indexes and checkpoints."""
RECENT_BYTES = 4 << 10
"""Small, so that most reads come from the disk, and one file is closed to open another."""
STORE = StoreSettings(segment_bytes=SEGMENT_BYTES, recent_bytes=RECENT_BYTES, headroom_bytes=0, threads=False)


class RoleMachine(Machine):
    """A machine of the cluster itself, with an address."""

    def __init__(self, world: World, name: str, address: str) -> None:
        """Listen at `address`, host:port."""
        super().__init__(world, name)
        self.address = address
        world.network.set_address(name, address)
        self.running: Running | None = None
        self.chosen: dict[str, Any] = {}
        """Settings of the role that differ from the defaults of a simulated machine."""

    def move(self) -> None:
        """Use another address from the next start, as in a cluster that reassigns addresses."""
        host, _, port = self.address.rpartition(":")
        self.address = f"{host}:{int(port) + 1}"
        self.world.network.set_address(self.name, self.address)

    def opening(self) -> AbstractAsyncContextManager[Running]:
        """The context manager that opens the role."""
        raise NotImplementedError

    async def stop(self) -> None:
        """Ask it to end. A role that is not ready may be waiting for another role, so its start is cancelled."""
        if self.alive and not self.ready.is_set():
            self._main.cancel()
        await super().stop()

    async def work(self) -> None:
        """Run the role until the machine is asked to stop."""
        async with contextlib.AsyncExitStack() as parts:
            self.running = await parts.enter_async_context(self.opening())
            self.ready.set()
            await self.stopping()


class NamesrvMachine(RoleMachine):
    """A name server; its database is on another machine."""

    def __init__(self, world: World, name: str, address: str, all_addresses: str) -> None:
        """One of those at `all_addresses`, separated by `;`."""
        super().__init__(world, name, address)
        self._all_addresses = all_addresses

    def opening(self) -> AbstractAsyncContextManager[Running]:
        """The name server."""
        chosen = namesrv_settings.NamesrvSettings(
            name=self.name,
            listen_address=self.address,
            insecure=True,  # so that hostile clients' PutUser reaches the database
            namesrv_address=self._all_addresses,
            stop_grace_s=STOP_GRACE_S,
        )
        return namesrv_app.open_namesrv(
            replace(chosen, **self.chosen),
            clock=self.clock,
            randomness=self.randomness(),
            open_catalog=self.world.database.open,
        )


class EnodeMachine(RoleMachine):
    """An enode and its disk."""

    def __init__(self, world: World, name: str, address: str, namesrv_address: str) -> None:
        """With an empty disk."""
        super().__init__(world, name, address)
        self.disk = MachineDisk(world.random_streams.stream(f"disk {name}"))
        self._namesrv_address = namesrv_address

    def opening(self) -> AbstractAsyncContextManager[Running]:
        """The enode."""
        chosen = enode_settings.EnodeSettings(
            name=self.name,
            listen_address=self.address,
            namesrv_address=self._namesrv_address,
            data_dir=Path("/") / self.name,
            store=STORE,
            stop_grace_s=STOP_GRACE_S,
            transaction_check_interval_ms=CHECK_INTERVAL_MS,
        )
        return enode_app.open_enode(
            replace(chosen, **self.chosen), clock=self.clock, randomness=self.randomness(), disk=self.disk.open()
        )  # fmt: skip

    @property
    def is_leading(self) -> bool:
        """Whether it serves clients now."""
        running = self.running
        return self.alive and isinstance(running, enode_app.RunningEnode) and running.process.services is not None

    def kill(self) -> None:
        """Kill the process; the system still writes the data of its files over time."""
        if self.alive:
            self.disk.on_process_killed()
        super().kill()

    def cut_power(self, outcome: CrashOutcome = USUAL_OUTCOME, *, inside_write: bool = False) -> None:
        """Cut the power; unsynced changes may be lost or torn. `inside_write` as in `SimulatedDisk.stop`."""
        if self.alive:
            self.disk.cut_power(outcome, inside_write=inside_write)
        super().cut_power()


class ReplicaMachine(EnodeMachine):
    """A replica of an enode, a machine with a disk of its own."""

    def __init__(
        self, world: World, enode: str, number: int, replicas: int, network: str, namesrv_address: str
    ) -> None:
        """Replica `number` of `replicas`, whose addresses are `network`1, `network`2 and so on."""
        super().__init__(world, f"{enode}-{number}", f"{network}{number}:8000", namesrv_address)
        self.enode = enode
        self.number = number
        self._replicas = replicas
        self._addresses = [f"{network}{one}:8100" for one in range(1, replicas + 1)]
        world.network.set_address(self.name, self._addresses[number - 1])

    def opening(self) -> AbstractAsyncContextManager[Running]:
        """The replica."""
        chosen = enode_settings.EnodeSettings(
            name=self.enode,
            replica=self.number,
            replicas=self._replicas,
            listen_address=self.address,
            replica_listen_address=self._addresses[self.number - 1],
            replica_addresses=";".join(self._addresses),
            namesrv_address=self._namesrv_address,
            data_dir=Path("/") / self.name,
            store=STORE,
            stop_grace_s=STOP_GRACE_S,
            transaction_check_interval_ms=CHECK_INTERVAL_MS,
        )
        return enode_app.open_enode(
            replace(chosen, **self.chosen), clock=self.clock, randomness=self.randomness(), disk=self.disk.open()
        )

    def may_crash_with(self, error: BaseException) -> bool:
        """Whether the replica's disk failed; the other replicas continue."""
        if isinstance(error, BaseExceptionGroup):
            return all(map(self.may_crash_with, error.exceptions))
        return isinstance(error, OSError)


class SnodeMachine(RoleMachine):
    """A snode."""

    def __init__(self, world: World, name: str, address: str, namesrv_address: str, *, shares_membership: bool) -> None:
        """A snode, one of several if it shares group membership."""
        super().__init__(world, name, address)
        self._namesrv_address = namesrv_address
        self._redis_url = "redis://redis:6379/0" if shares_membership else ""

    def opening(self) -> AbstractAsyncContextManager[Running]:
        """The snode."""
        chosen = snode_settings.SnodeSettings(
            name=self.name,
            listen_address=self.address,
            namesrv_address=self._namesrv_address,
            redis_url=self._redis_url,
            stop_grace_s=STOP_GRACE_S,
            connection_age_max_s=0.0,  # virtual hours pass in a moment
        )
        return snode_app.open_snode(
            replace(chosen, **self.chosen),
            clock=self.clock,
            randomness=self.randomness(),
            connect_redis=self.world.redis.client,
        )
