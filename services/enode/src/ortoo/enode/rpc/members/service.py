"""MemberService: what the other members say to this one."""

from collections.abc import AsyncIterator
from typing import Protocol

from ortoo.common.errors import Conflict, Invalid
from ortoo.common.grpc.errors import Context
from ortoo.common.grpc.fields import write
from ortoo.enode.consensus.joining import Joining
from ortoo.enode.members.driver import Event
from ortoo.enode.members.identity import MemberId
from ortoo.enode.rpc.members.words import decode_word, is_answered
from ortoo.v1 import member_report_pb2
from ortoo.v1 import members_pb2 as pb
from ortoo.v1.members_pb2_grpc import MemberServiceServicer

NAME = "ortoo.v1.MemberService"


class Listener(Protocol):
    """The member that is running."""

    def post(self, event: Event) -> None:
        """Take a word."""


class MemberService(MemberServiceServicer):
    """The words of others, for the start of this member that is there."""

    def __init__(self, cluster: str, enode: str, joining: Joining) -> None:
        self.listener: Listener | None = None
        """Who listens; None while the log is being opened."""
        self._cluster = cluster
        self._enode = enode
        self._joining = joining

    async def Speak(
        self, request_iterator: AsyncIterator[pb.MemberMessage], context: Context
    ) -> AsyncIterator[pb.SpeakResponse]:
        """Take one word after another."""
        first = await anext(aiter(request_iterator), None)
        if first is None:
            return
        kept = self._joining.kept
        if first.set_id != kept.set_id:
            raise Conflict(
                f"this member is of set {kept.set_id or '(none yet)'}, not of {first.set_id}", field="set_id"
            )
        if member_id(first.to) != kept.member:
            raise Conflict(
                f"here is member {kept.member.number} with disk {kept.member.disk}, not member {first.to.number} with "
                f"disk {first.to.disk}",
                field="to",
            )
        yield pb.SpeakResponse()
        async for message in request_iterator:
            word = decode_word(message)
            if word is not None and self.listener is not None:
                self.listener.post(word)
            if word is None or is_answered(word):
                yield pb.SpeakResponse()

    async def Join(self, request: pb.JoinRequest, context: Context) -> pb.JoinResponse:
        """Be of a set from now on."""
        if (request.cluster, request.enode) != (self._cluster, self._enode):
            raise Invalid(
                f"this is enode {self._enode!r} of cluster {self._cluster!r}, not {request.enode!r} of "
                f"{request.cluster!r}",
                field="enode",
            )
        if not request.set_id:
            raise Invalid("expected the id of a set", field="set_id")
        member = await self._joining.join(request.set_id, request.created_at_ms)
        return pb.JoinResponse(member=write(member_report_pb2.MemberId, member))


def member_id(message: member_report_pb2.MemberId) -> MemberId:
    """As the protocol has it."""
    return MemberId(message.number, message.disk)
