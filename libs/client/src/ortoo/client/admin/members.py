"""What operators do with the members of enodes. Everything goes through AdminService, so grpcurl can do it too."""

from dataclasses import dataclass
from functools import partial

from ortoo.client.core.connection import Connection
from ortoo.client.core.wire import EnumNames
from ortoo.common.errors import Invalid
from ortoo.common.grpc.fields import read
from ortoo.v1 import enode_members_pb2, member_admin_pb2, member_report_pb2, topic_pb2
from ortoo.v1.admin_pb2_grpc import AdminServiceStub

_STATES = EnumNames("state", topic_pb2.EnodeMemberState)
NUMBER_MAX = 1_000


@dataclass(frozen=True, slots=True)
class EnodeMember:
    """A process that keeps an enode's log, as it said last to the name server."""

    number: int
    disk: str
    """The id of its disk; an emptied disk is another member."""
    state: str
    """leading, following, learning (it has no vote yet), away, or waiting (an empty disk that may be added)."""
    address: str = ""
    member_address: str = ""
    role: str = ""
    epoch: int = 0
    """The highest epoch that it has promised."""
    tail_epoch: int = 0
    """Of the last frame of its log."""
    tail_position: int = 0
    """Where its log ends."""
    committed: int = 0
    """Everything below is on a majority of the disks, as far as it knows."""
    is_electable: bool = False
    is_leader_silent: bool = False
    """It hears no leader."""
    reported_ms_ago: int | None = None
    """None = it never reported to the name server that answered."""
    lag_bytes: int | None = None
    """How far it is behind the leader's log; None = not known."""


@dataclass(frozen=True, slots=True)
class EnodeMembers:
    """The members of one enode."""

    enode: str
    set_id: str
    leader: int | None
    """The number of the member that leads; None = nobody, as far as the name server knows."""
    proposed: int | None
    """The number of the member that the name servers proposed last."""
    proposed_epoch: int
    majority: int
    """How many have to agree on a leader, and have to have what is acknowledged."""
    members: tuple[EnodeMember, ...]


class MemberAdmin:
    """An operator's calls about the members of enodes. Reached as `Client.admin.members`."""

    def __init__(self, connection: Connection) -> None:
        """`Client.admin.members` is the way in."""
        self._call = partial(connection.call, AdminServiceStub)

    async def list(self, enode: str = "") -> tuple[EnodeMembers, ...]:
        """The members of one enode, or of all that have some. Errors: NotFound."""
        answer = await self._call("ListMembers", member_admin_pb2.ListMembersRequest(enode=enode))
        return tuple(map(_members, answer.enodes))

    async def hand_over(self, enode: str, to: int | None = None) -> int:
        """Let another member lead, the one that has the most unless one is named; the number of the successor.

        Errors: NotFound, Conflict; Unavailable when nobody leads.
        """
        request = enode_members_pb2.HandOverRequest(enode=enode, successor=_id(to, "") if to is not None else None)
        answer = await self._call("HandOver", request)
        return int(answer.successor.number)

    async def elect(self, enode: str, number: int, disk: str = "") -> int:
        """Have a member proposed when nobody leads; the epoch. Errors: NotFound; Conflict, which says why not."""
        request = member_admin_pb2.ElectMemberRequest(enode=enode, member=_id(number, disk))
        return int((await self._call("ElectMember", request)).proposal.epoch)

    async def add(self, enode: str, number: int, disk: str = "") -> None:
        """Let a disk that waits have the log; it votes when it has it. Errors: NotFound, Conflict, Unavailable."""
        await self._call("AddMember", enode_members_pb2.AddMemberRequest(enode=enode, member=_id(number, disk)))

    async def remove(self, enode: str, number: int, disk: str = "") -> None:
        """Let a member have nothing more. Errors: NotFound; Conflict when it leads; Unavailable."""
        await self._call("RemoveMember", enode_members_pb2.RemoveMemberRequest(enode=enode, member=_id(number, disk)))

    async def accept_store(self, enode: str, store_id: str) -> str:
        """Let an enode come back with another store, such as an empty one; the id of the store that is given up then.

        Until that store has come, the known one may come too. With the id of the known one it takes the word back.
        Errors: NotFound for an enode that was never there; Invalid; Unavailable.
        """
        request = member_admin_pb2.AcceptStoreRequest(enode=enode, store_id=store_id)
        return str((await self._call("AcceptStore", request)).former_store_id)


def _id(number: int, disk: str) -> member_report_pb2.MemberId:
    if not 1 <= number <= NUMBER_MAX:
        raise Invalid(f"{number}; give the number of a member, 1 to {NUMBER_MAX}", field="member")
    return member_report_pb2.MemberId(number=number, disk=disk)


def _members(found: member_admin_pb2.EnodeMembers) -> EnodeMembers:
    return read(
        EnodeMembers,
        found,
        leader=found.leader.number if found.HasField("leader") else None,
        proposed=found.proposal.leader.number if found.HasField("proposal") else None,
        proposed_epoch=found.proposal.epoch,
        members=tuple(
            read(
                EnodeMember,
                one,
                number=one.member.number,
                disk=one.member.disk,
                state=_STATES.name(one.state),
                tail_epoch=one.tail.epoch,
                tail_position=one.tail.position,
            )
            for one in found.members
        ),
    )
