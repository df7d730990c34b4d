"""Additional faults of the replicas of an enode, and the operator that repairs them."""

import contextlib
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import grpc

from ortoo.common.errors import OrtooError
from ortoo.common.grpc.channels import Channels
from ortoo.common.grpc.transport import using_transport
from ortoo.enode.app import RunningEnode
from ortoo.testing.simulation.cluster.cluster import SimulatedCluster
from ortoo.testing.simulation.cluster.roles import ReplicaMachine
from ortoo.v1 import enode_replicas_pb2 as pb
from ortoo.v1.enode_replicas_pb2_grpc import EnodeReplicasServiceStub
from ortoo.v1.replica_report_pb2 import ReplicaId
from ortoo.verification.simulation.duties.replica_duties import ReplicaDuties
from ortoo.verification.simulation.oracle.oracle import Oracle
from ortoo.verification.simulation.run.agreement import SEGMENT_SUFFIX
from ortoo.verification.simulation.run.injector import DRIFT, FaultInjector, Undo
from ortoo.verification.simulation.run.plan import PlannedFault
from ortoo.verification.simulation.run.repeated_messages import RepeatedMessages
from ortoo.verification.simulation.workload.application import Application

CLOCK_OFF_MS = 30_000.0
LOOK_S = 0.3
NEEDED_FILES = ("reign", "reign", "outline", "identity")
"""Files without which a replica does not start."""
VERSIONED_FILES = ("reign", "outline")
"""Files whose older copies a start refuses."""
CALL_TIMEOUT_S = 3.0


class ReplicaFaultInjector(FaultInjector):
    """Injects faults into a cluster whose enode has several replicas."""

    def __init__(
        self, cluster: SimulatedCluster, applications: Sequence[Application], oracle: Oracle, duties: ReplicaDuties
    ) -> None:
        """Inject faults into these machines, and notify the oracle and the model of duties."""
        super().__init__(cluster, applications, oracle)
        self._duties = duties
        self._replicas = cluster.replicas
        self._replacements: str = ""
        """The replica whose disk is being replaced: no other disk is emptied before that is done."""

    def resolve_target(self, fault: PlannedFault) -> PlannedFault:
        """The fault with the leader as its target, if it is meant for the leader."""
        leader = next((one.name for one in self._replicas if one.is_leading), "")
        return replace(fault, target=leader) if fault.at_leader and leader else fault

    async def undo_all(self) -> None:
        """Undo all faults; an emptied disk joins the replica set again."""
        await super().undo_all()
        while self._replacements:
            await self.world.clock.sleep(LOOK_S)

    def _disturb(self, fault: PlannedFault) -> None:
        super()._disturb(fault)
        for one in self._replicas:
            if one.name in (fault.target, fault.other):
                self.oracle.disturbed(one.enode)

    def _cut_from_members(self, fault: PlannedFault) -> Undo:
        """Cut packets from the other replicas, to them, or both; its clients and name servers still reach it."""
        parted = []
        for one in self._replicas:
            if one.name != fault.target and fault.amount < 0.66:
                parted.append(self.world.network.partition(fault.target, one.name, both_ways=fault.amount < 0.33))
            elif one.name != fault.target:
                parted.append(self.world.network.partition(one.name, fault.target, both_ways=False))
        return _all(parted)

    def _cut_from_name_servers(self, fault: PlannedFault) -> Undo:
        return _all(
            [
                self.world.network.partition(fault.target, one.name, both_ways=fault.amount < 0.5)
                for one in self._cluster.name_servers
            ]
        )

    def _killed_in_a_cut(self, fault: PlannedFault) -> Undo:
        """Isolate it for a while, and kill it while it truncates entries that the others do not have."""
        machine = self._enode(fault)
        alone = self.world.network.isolate(fault.target)

        def back() -> None:
            alone()
            machine.disk.call_at_next("name", self.world.loop, 1.0, die)

        def die() -> None:
            loop = self.world.loop
            if not self._is_over:
                machine.kill()
                loop.call_later(1.0, machine.start, context=loop.outside.context)

        return back

    def _emptied_disk(self, fault: PlannedFault) -> Undo | None:
        """Lose a minority's disk; an operator replaces it by an empty one."""
        machine = self._taken(fault)
        if machine is None:
            return None
        machine.cut_power()
        machine.disk.replace_with_empty()
        return lambda: self._begin_again(machine)

    def _lost_file(self, fault: PlannedFault) -> Undo | None:
        """Delete one small file of a replica. A supervisor restarts it until an operator empties its disk."""
        machine = self._taken(fault)
        if machine is None:
            return None
        machine.kill()
        name = NEEDED_FILES[int(fault.amount * len(NEEDED_FILES)) % len(NEEDED_FILES)]
        path = Path("/") / machine.name / name
        if path in machine.disk.files():
            machine.disk.remove(path)
        machine.start()

        return partial(self._empty, machine)

    def _rolled_back_file(self, fault: PlannedFault) -> Undo | None:
        """Put an older copy of a small file back, as a wrong restore does. Then as with a lost file."""
        machine = self._taken(fault)
        if machine is None:
            return None
        name = VERSIONED_FILES[int(fault.amount * len(VERSIONED_FILES)) % len(VERSIONED_FILES)]
        path = Path("/") / machine.name / name
        before = machine.disk.content(path) if path in machine.disk.files() else b""
        machine.kill()
        machine.start()  # each start writes these files

        is_older = False

        def put_back() -> None:
            nonlocal is_older
            is_there = path in machine.disk.files()
            if not self._is_over and machine.alive and is_there and machine.disk.content(path) != before:
                machine.kill()
                machine.disk.put(path, before)
                machine.start()
                is_older = True

        def emptied() -> None:
            if is_older and machine.ready.is_set():
                self._duties.broken(f"{machine.name} has started with an older copy of its file {name}")
            self._empty(machine)

        loop = self.world.loop
        loop.call_later(fault.lasts_s / 2, put_back, context=loop.outside.context)
        return emptied

    def _empty(self, machine: ReplicaMachine) -> None:
        machine.cut_power()
        machine.disk.replace_with_empty()
        self._begin_again(machine)

    def _late_and_twice(self, fault: PlannedFault) -> Undo:
        """Some messages from and to a replica arrive again, up to seconds later."""
        return RepeatedMessages(self.world, {one.name: one for one in self._replicas}, fault.target).end

    def _clocks_apart(self, fault: PlannedFault) -> Undo:
        """The clock of each replica has a drift of its own."""
        for number, one in enumerate(self._replicas):
            drift = DRIFT * (2 * ((fault.amount + number / len(self._replicas)) % 1.0) - 1)
            one.clock.drift(drift)
            gained_ms = max(0.0, drift) * fault.lasts_s * 1000
            self.oracle.clock_ahead_ms = max(self.oracle.clock_ahead_ms, one.clock.wall_error_ms + gained_ms)

        def together() -> None:
            for one in self._replicas:
                one.clock.drift(0.0)
                self._notice_clock(one)

        return together

    def _taken(self, fault: PlannedFault) -> ReplicaMachine | None:
        """The machine whose disk is replaced; None during another replacement, or if this disk must stay."""
        machine = self._enode(fault)
        if self._replacements or not isinstance(machine, ReplicaMachine) or not self._is_replica(machine):
            return None
        if self.flipped not in ("", machine.name):
            return None
        self.flipped = ""
        self._replacements = machine.name
        self._duties.is_disk_lost = True
        return machine

    def _begin_again(self, machine: ReplicaMachine) -> None:
        """Start a machine with an empty disk, and let an operator admit it."""
        machine.start()
        loop = self.world.loop
        self._stops.append(loop.create_task(self._replace(machine), context=loop.outside.context.copy()))

    def _bit_flip(self, fault: PlannedFault) -> None:
        """Flip a bit that the other replicas have right: it is no excuse for a loss."""
        machine = self._enode(fault)
        if not self._replacements and self.flipped in ("", machine.name) and machine.disk.flip_bit(SEGMENT_SUFFIX):
            self.flipped = machine.name

    def _clock_off(self, fault: PlannedFault) -> Undo:
        machine, by_ms = self.machines[fault.target], (fault.amount * 2 - 1) * CLOCK_OFF_MS
        machine.clock.jump(by_ms)
        self._notice_clock(machine)

        def right() -> None:
            machine.clock.jump(-by_ms)
            self._notice_clock(machine)

        return right

    def _database_restored(self, fault: PlannedFault) -> Undo:
        """Replace the leader proposals in the database by earlier ones."""
        database = self.world.database
        before = database.proposals()
        return lambda: database.restore_proposals(before)

    def _is_replica(self, machine: ReplicaMachine) -> bool:
        """Whether the enode's replica set includes this disk, so that it can lose it."""
        known = [one.running.process.driver for one in self._replicas if isinstance(one.running, RunningEnode)]
        members = [driver.replica.log.configuration for driver in known if driver is not None]
        running = machine.running
        disk = running.process.membership.stored.replica if isinstance(running, RunningEnode) else None
        return bool(members) and all(disk in one.voters and len(one.replicas) == len(self._replicas) for one in members)

    async def _replace(self, machine: ReplicaMachine) -> None:
        """Add the empty disk and remove the lost one, as an operator does, with retries."""
        with using_transport(self.world.network.transport):
            async with Channels() as channels:
                while not await self._replace_step(machine, channels):
                    await self.world.clock.sleep(LOOK_S)
        self._replacements = ""

    async def _replace_step(self, machine: ReplicaMachine, channels: Channels) -> bool:
        """Do the next step of the replacement; return whether all steps are done."""
        leader = next((one for one in self._replicas if one.is_leading), None)
        running = machine.running
        if leader is None or not machine.ready.is_set() or not isinstance(running, RunningEnode):
            return False
        enode, new = machine.enode, running.process.membership.stored.replica
        stub = EnodeReplicasServiceStub(channels.channel_to(leader.address))
        with contextlib.suppress(grpc.RpcError, OrtooError):  # another one leads now, or the last step is not done
            asked = pb.DescribeReplicasRequest(enode=enode)
            members = (await stub.DescribeReplicas(asked, timeout=CALL_TIMEOUT_S)).replicas
            there = {(one.replica.number, one.replica.disk): one.is_voter for one in members}
            old = [disk for number, disk in there if number == new.number and disk != new.disk]
            if (new.number, new.disk) not in there:
                word = ReplicaId(number=new.number, disk=new.disk)
                added = pb.AddReplicaRequest(enode=enode, replica=word, replica_address=running.replica_address)
                await stub.AddReplica(added, timeout=CALL_TIMEOUT_S)
            elif there[new.number, new.disk] and old:
                gone = ReplicaId(number=new.number, disk=old[0])
                await stub.RemoveReplica(pb.RemoveReplicaRequest(enode=enode, replica=gone), timeout=CALL_TIMEOUT_S)
            else:
                return there[new.number, new.disk]
        return False


def _all(undone: Sequence[Undo]) -> Undo:
    def undo() -> None:
        for one in undone:
            one()

    return undo
