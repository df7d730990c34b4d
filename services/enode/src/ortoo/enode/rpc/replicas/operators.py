"""EnodeMembersService: operators' requests about the replica set of an enode, sent to any of its replicas."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from ortoo.common.errors import Conflict, Invalid, OrtooError, Unavailable
from ortoo.common.grpc.errors import Context
from ortoo.common.grpc.messages import read, write
from ortoo.enode.replication.driver import Driver
from ortoo.enode.replication.protocol.events import AddLearner, RemoveReplica
from ortoo.enode.replication.protocol.identity import ReplicaId
from ortoo.enode.replication.protocol.roles import Follower, Leader
from ortoo.v1 import enode_members_pb2 as pb
from ortoo.v1 import member_report_pb2
from ortoo.v1.enode_members_pb2_grpc import EnodeMembersServiceServicer

NAME = "ortoo.v1.EnodeMembersService"
CONFIGURATION_CHANGE_TIMEOUT_S = 5.0
"""The timeout for committing a change of the replica set; then the operator has to check the outcome."""


@dataclass(eq=False)
class EnodeReplicasService(EnodeMembersServiceServicer):
    """The replica set of one enode, as this replica knows it."""

    enode: str
    set_id: Callable[[], str]
    driver: Callable[[], Driver | None]
    """The driver of this replica; None while the log is being opened."""
    not_leading_error: Callable[[], OrtooError]
    """The error that names the leader."""
    admit: Callable[[ReplicaId, str], Awaitable[None]]
    """Makes the disk at an address join this replica set."""

    async def DescribeMembers(self, request: pb.DescribeMembersRequest, context: Context) -> pb.DescribeMembersResponse:
        """Describe the replica set as this replica knows it."""
        driver = self._running_driver(request.enode)
        replica, role = driver.replica, driver.replica.role
        response = pb.DescribeMembersResponse(
            enode=self.enode,
            set_id=self.set_id(),
            member=write(member_report_pb2.MemberId, replica.identity.member),
            epoch=replica.hard_state.epoch,
            is_leading=driver.leading_epoch is not None,
            members=self._describe_replicas(driver),
            committed=replica.log.committed,
            tail=write(member_report_pb2.LogTail, replica.log.tail),
        )
        leader = role.leader.member if isinstance(role, Follower) else replica.identity.member
        if isinstance(role, Follower | Leader):
            response.leader.CopyFrom(write(member_report_pb2.MemberId, leader))
        return response

    async def HandOver(self, request: pb.HandOverRequest, context: Context) -> pb.HandOverResponse:
        """Transfer leadership to another voter."""
        driver = self._leading_driver(request.enode)
        others = [one for one in driver.replica.log.configuration.voters if one != driver.replica.identity.member]
        successor = (
            read(ReplicaId, request.successor) if request.HasField("successor") else driver.most_complete_voter()
        )
        if successor is None:
            raise Conflict("no other voter answers: start one first", field="successor")
        if successor not in others:
            numbers = ", ".join(str(one.number) for one in others)
            raise Invalid(f"replica {successor.number} with that disk is no other voter; give one of {numbers}",
                          field="successor")  # fmt: skip
        epoch = driver.replica.hard_state.epoch
        await driver.transfer_leadership(successor)
        if not await driver.wait_for_transfer(epoch):
            raise Conflict(f"replica {successor.number} did not catch up in time; this replica stays leader")
        return pb.HandOverResponse(epoch=epoch, successor=write(member_report_pb2.MemberId, successor))

    async def AddMember(self, request: pb.AddMemberRequest, context: Context) -> pb.AddMemberResponse:
        """Add a disk as a learner, which gets a copy of the log."""
        driver = self._leading_driver(request.enode)
        replica_id = read(ReplicaId, request.member)
        if replica_id not in driver.replica.log.configuration.replicas:
            if request.member_address:
                await self.admit(replica_id, request.member_address)
            driver.request(AddLearner(replica_id))
            await self._wait_committed(
                driver, lambda: replica_id in driver.replica.log.configurations[0].configuration.replicas
            )
        return pb.AddMemberResponse(members=self._describe_replicas(driver))

    async def RemoveMember(self, request: pb.RemoveMemberRequest, context: Context) -> pb.RemoveMemberResponse:
        """Remove a replica from the replica set."""
        driver = self._leading_driver(request.enode)
        replica_id = read(ReplicaId, request.member)
        if replica_id in driver.replica.log.configuration.replicas:
            driver.request(RemoveReplica(replica_id))
            await self._wait_committed(
                driver, lambda: replica_id not in driver.replica.log.configurations[0].configuration.replicas
            )
        return pb.RemoveMemberResponse(members=self._describe_replicas(driver))

    async def _wait_committed(self, driver: Driver, is_applied: Callable[[], bool]) -> None:
        """Wait until the change is committed, which shows in the oldest placed configuration."""
        try:
            async with asyncio.timeout(CONFIGURATION_CHANGE_TIMEOUT_S):
                while not is_applied():
                    if driver.leading_epoch is None:
                        raise Unavailable("this replica lost leadership: ask the leader whether the change was made")
                    await driver.wait_for_step()
        except TimeoutError:
            raise Unavailable(
                f"not committed within {CONFIGURATION_CHANGE_TIMEOUT_S} s: check whether it is by now"
            ) from None

    def _describe_replicas(self, driver: Driver) -> list[pb.DescribedMember]:
        replica, role, configuration = driver.replica, driver.replica.role, driver.replica.log.configuration
        now_s, found = driver.clock.monotonic_s(), []
        for one in sorted(configuration.replicas):
            described = pb.DescribedMember(
                member=write(member_report_pb2.MemberId, one), votes=one in configuration.voters
            )
            if isinstance(role, Leader):
                is_me = one == replica.identity.member
                described.flushed = (
                    replica.log.flushed if is_me else replica.rules.acknowledged_position(role.stream_to(one))
                )  # fmt: skip
                described.lag_bytes = max(0, replica.log.appended - described.flushed)
                last_response = role.last_response_of(one)
                if is_me or last_response.round:
                    described.heard_ms_ago = 0 if is_me else max(0, round((now_s - last_response.at_s) * 1000))
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
