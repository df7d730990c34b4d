"""EnodeMembersService: operators' requests about the replica set of an enode, sent to any of its replicas."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from ortoo.common.errors import Conflict, Invalid, OrtooError, Unavailable
from ortoo.common.grpc.errors import Context
from ortoo.common.grpc.messages import read, write
from ortoo.enode.replication.driver import Driver
from ortoo.enode.replication.protocol.events import AddLearner, Remove
from ortoo.enode.replication.protocol.identity import MemberId
from ortoo.enode.replication.protocol.roles import Follower, Leader
from ortoo.v1 import enode_members_pb2 as pb
from ortoo.v1 import member_report_pb2
from ortoo.v1.enode_members_pb2_grpc import EnodeMembersServiceServicer

NAME = "ortoo.v1.EnodeMembersService"
CHANGE_TIMEOUT_S = 5.0
"""The timeout for committing a change of the replica set; then the operator has to check the outcome."""


@dataclass(eq=False)
class EnodeMembersService(EnodeMembersServiceServicer):
    """The replica set of one enode, as this replica knows it."""

    enode: str
    set_id: Callable[[], str]
    running: Callable[[], Driver | None]
    """The driver of this replica; None while the log is being opened."""
    moved: Callable[[], OrtooError]
    """The error that names the leader."""
    admit: Callable[[MemberId, str], Awaitable[None]]
    """Makes the disk at an address join this replica set."""

    async def DescribeMembers(self, request: pb.DescribeMembersRequest, context: Context) -> pb.DescribeMembersResponse:
        """Describe the replica set as this replica knows it."""
        driver = self._running(request.enode)
        member, role = driver.member, driver.member.role
        answer = pb.DescribeMembersResponse(
            enode=self.enode,
            set_id=self.set_id(),
            member=write(member_report_pb2.MemberId, member.me.member),
            epoch=member.reign.epoch,
            is_leading=driver.leads is not None,
            members=self._described(driver),
            committed=member.log.committed,
            tail=write(member_report_pb2.LogTail, member.log.tail),
        )
        leader = role.leader.member if isinstance(role, Follower) else member.me.member
        if isinstance(role, Follower | Leader):
            answer.leader.CopyFrom(write(member_report_pb2.MemberId, leader))
        return answer

    async def HandOver(self, request: pb.HandOverRequest, context: Context) -> pb.HandOverResponse:
        """Transfer leadership to another voter."""
        driver = self._leading(request.enode)
        others = [one for one in driver.member.log.members.voters if one != driver.member.me.member]
        successor = read(MemberId, request.successor) if request.HasField("successor") else driver.most_complete()
        if successor is None:
            raise Conflict("no other voter answers: start one first", field="successor")
        if successor not in others:
            known = ", ".join(str(one.number) for one in others)
            raise Invalid(f"replica {successor.number} with that disk is no other voter; give one of {known}",
                          field="successor")  # fmt: skip
        epoch = driver.member.reign.epoch
        await driver.hand_over(successor)
        if not await driver.let_go(epoch):
            raise Conflict(f"replica {successor.number} did not catch up in time; this replica stays leader")
        return pb.HandOverResponse(epoch=epoch, successor=write(member_report_pb2.MemberId, successor))

    async def AddMember(self, request: pb.AddMemberRequest, context: Context) -> pb.AddMemberResponse:
        """Add a disk as a learner, which gets a copy of the log."""
        driver = self._leading(request.enode)
        member = read(MemberId, request.member)
        if member not in driver.member.log.members.everybody:
            if request.member_address:
                await self.admit(member, request.member_address)
            driver.asked(AddLearner(member))
            await self._committed(driver, lambda: member in driver.member.log.placed[0].configuration.everybody)
        return pb.AddMemberResponse(members=self._described(driver))

    async def RemoveMember(self, request: pb.RemoveMemberRequest, context: Context) -> pb.RemoveMemberResponse:
        """Remove a replica from the replica set."""
        driver = self._leading(request.enode)
        member = read(MemberId, request.member)
        if member in driver.member.log.members.everybody:
            driver.asked(Remove(member))
            await self._committed(driver, lambda: member not in driver.member.log.placed[0].configuration.everybody)
        return pb.RemoveMemberResponse(members=self._described(driver))

    async def _committed(self, driver: Driver, is_so: Callable[[], bool]) -> None:
        """Wait until the change is committed, which shows in the oldest placed configuration."""
        try:
            async with asyncio.timeout(CHANGE_TIMEOUT_S):
                while not is_so():
                    if driver.leads is None:
                        raise Unavailable("this replica lost leadership: ask the leader whether the change was made")
                    await driver.stepped()
        except TimeoutError:
            raise Unavailable(f"not committed within {CHANGE_TIMEOUT_S} s: check whether it is by now") from None

    def _described(self, driver: Driver) -> list[pb.DescribedMember]:
        member, role, members = driver.member, driver.member.role, driver.member.log.members
        now_s, found = driver.clock.monotonic_s(), []
        for one in sorted(members.everybody):
            described = pb.DescribedMember(member=write(member_report_pb2.MemberId, one), votes=one in members.voters)
            if isinstance(role, Leader):
                is_me = one == member.me.member
                described.flushed = (
                    member.log.flushed if is_me else member.rules.counted_position(role.stream_of(one))
                )  # fmt: skip
                described.lag_bytes = max(0, member.log.appended - described.flushed)
                heard = role.heard_of(one)
                if is_me or heard.round:
                    described.heard_ms_ago = 0 if is_me else max(0, round((now_s - heard.at_s) * 1000))
            found.append(described)
        return found

    def _running(self, enode: str) -> Driver:
        if enode != self.enode:
            raise Invalid(f"this is a replica of enode {self.enode!r}, not of {enode!r}", field="enode")
        driver = self.running()
        if driver is None:
            raise self.moved()
        return driver

    def _leading(self, enode: str) -> Driver:
        driver = self._running(enode)
        if driver.leads is None:
            raise self.moved()
        return driver
