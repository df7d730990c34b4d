"""EnodeReplicasService: operators' requests about the replica set of an enode, sent to any of its replicas."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from ortoo.common.errors import Conflict, Invalid, OrtooError, Unavailable
from ortoo.common.grpc.errors import Context
from ortoo.common.grpc.messages import read, write
from ortoo.enode.observe.disk_space import full_in_s
from ortoo.enode.replication.driver import Driver
from ortoo.enode.replication.protocol.events import AddLearner, RemoveReplica
from ortoo.enode.replication.protocol.identity import ReplicaId
from ortoo.enode.replication.protocol.roles import Follower, Leader
from ortoo.enode.store.housekeeping import Housekeeping
from ortoo.v1 import enode_replicas_pb2 as pb
from ortoo.v1 import replica_report_pb2
from ortoo.v1.enode_replicas_pb2_grpc import EnodeReplicasServiceServicer

NAME = "ortoo.v1.EnodeReplicasService"
CONFIGURATION_CHANGE_TIMEOUT_S = 5.0
"""The timeout for committing a change of the replica set; then the operator has to check the outcome."""


@dataclass(eq=False)
class EnodeReplicasService(EnodeReplicasServiceServicer):
    """The replica set of one enode, as this replica knows it."""

    enode: str
    set_id: Callable[[], str]
    driver: Callable[[], Driver | None]
    """The driver of this replica; None while the log is being opened."""
    not_leading_error: Callable[[], OrtooError]
    """The error that names the leader."""
    admit: Callable[[ReplicaId, str], Awaitable[None]]
    """Makes the disk at an address join this replica set."""

    async def DescribeReplicas(
        self, request: pb.DescribeReplicasRequest, context: Context
    ) -> pb.DescribeReplicasResponse:
        """Describe the replica set as this replica knows it."""
        driver = self._running_driver(request.enode)
        driver.log.report_progress()
        replica, role = driver.replica, driver.replica.role
        response = pb.DescribeReplicasResponse(
            enode=self.enode,
            set_id=self.set_id(),
            replica=write(replica_report_pb2.ReplicaId, replica.identity.replica),
            epoch=replica.hard_state.epoch,
            is_leading=driver.leading_epoch is not None,
            replicas=self._describe_replicas(driver),
            committed=replica.log.committed,
            tail=write(replica_report_pb2.LogTail, replica.log.tail),
            disk=_disk_state(driver.log.engine.housekeeping),
        )
        leader = role.leader.replica if isinstance(role, Follower) else replica.identity.replica
        if isinstance(role, Follower | Leader):
            response.leader.CopyFrom(write(replica_report_pb2.ReplicaId, leader))
        return response

    async def HandOver(self, request: pb.HandOverRequest, context: Context) -> pb.HandOverResponse:
        """Transfer leadership to another voter."""
        driver = self._leading_driver(request.enode)
        others = [one for one in driver.replica.log.configuration.voters if one != driver.replica.identity.replica]
        successor = (
            read(ReplicaId, request.successor) if request.HasField("successor") else driver.most_complete_voter()
        )
        if successor is None:
            raise Conflict("no other voter answers: start one first", field="successor")
        if successor not in others:
            numbers = ", ".join(str(one.number) for one in others)
            raise Invalid(f"replica {successor.number} with that disk is not another voter; give one of {numbers}",
                          field="successor")  # fmt: skip
        epoch = driver.replica.hard_state.epoch
        await driver.transfer_leadership(successor)
        if not await driver.wait_for_transfer(epoch):
            raise Conflict(f"replica {successor.number} did not catch up in time; this replica stays leader")
        return pb.HandOverResponse(epoch=epoch, successor=write(replica_report_pb2.ReplicaId, successor))

    async def AddReplica(self, request: pb.AddReplicaRequest, context: Context) -> pb.AddReplicaResponse:
        """Add a disk as a learner, which gets a copy of the log."""
        driver = self._leading_driver(request.enode)
        replica_id = read(ReplicaId, request.replica)
        if replica_id not in driver.replica.log.configuration.replicas:
            if request.replica_address:
                await self.admit(replica_id, request.replica_address)
            driver.request(AddLearner(replica_id))
            await self._wait_committed(
                driver, lambda: replica_id in driver.replica.log.configurations[0].configuration.replicas
            )
        return pb.AddReplicaResponse(replicas=self._describe_replicas(driver))

    async def RemoveReplica(self, request: pb.RemoveReplicaRequest, context: Context) -> pb.RemoveReplicaResponse:
        """Remove a replica from the replica set."""
        driver = self._leading_driver(request.enode)
        replica_id = read(ReplicaId, request.replica)
        if replica_id in driver.replica.log.configuration.replicas:
            driver.request(RemoveReplica(replica_id))
            await self._wait_committed(
                driver, lambda: replica_id not in driver.replica.log.configurations[0].configuration.replicas
            )
        return pb.RemoveReplicaResponse(replicas=self._describe_replicas(driver))

    async def _wait_committed(self, driver: Driver, is_applied: Callable[[], bool]) -> None:
        """Wait until the change is committed: the log's oldest known configuration then contains the change."""
        try:
            async with asyncio.timeout(CONFIGURATION_CHANGE_TIMEOUT_S):
                while not is_applied():
                    if driver.leading_epoch is None:
                        raise Unavailable("this replica lost leadership: ask the leader whether the change was made")
                    await driver.wait_for_step()
        except TimeoutError:
            raise Unavailable(
                f"the change was not committed within {CONFIGURATION_CHANGE_TIMEOUT_S} s: check later whether it is"
            ) from None

    def _describe_replicas(self, driver: Driver) -> list[pb.ReplicaProgress]:
        replica, role, configuration = driver.replica, driver.replica.role, driver.replica.log.configuration
        now_s, found = driver.clock.monotonic_s(), []
        for one in sorted(configuration.replicas):
            described = pb.ReplicaProgress(
                replica=write(replica_report_pb2.ReplicaId, one), is_voter=one in configuration.voters
            )
            if isinstance(role, Leader):
                is_me = one == replica.identity.replica
                described.flushed = (
                    replica.log.flushed if is_me else replica.rules.acknowledged_position(role.stream_to(one))
                )  # fmt: skip
                described.lag_bytes = max(0, replica.log.appended - described.flushed)
                last_response = role.last_response_of(one)
                if is_me or last_response.round:
                    described.heard_ms_ago = 0 if is_me else max(0, round((now_s - last_response.sent_s) * 1000))
            found.append(described)
        return found

    def _running_driver(self, enode: str) -> Driver:
        if enode != self.enode:
            raise Invalid(f"this is a replica of enode {self.enode!r}, not of {enode!r}", field="enode")
        driver = self.driver()
        if driver is None:
            raise self.not_leading_error()
        return driver

    def _leading_driver(self, enode: str) -> Driver:
        driver = self._running_driver(enode)
        if driver.leading_epoch is None:
            raise self.not_leading_error()
        return driver


def _disk_state(housekeeping: Housekeeping) -> pb.DiskState | None:
    """The space on the disk of the data folder; None before the first measurement."""
    space, left_s = housekeeping.space.space, full_in_s(housekeeping)
    if space is None:
        return None
    return write(pb.DiskState, space, full_in_ms=None if left_s is None else round(left_s * 1000))
