"""MemberService: messages from the other replicas."""

from collections.abc import AsyncIterator
from dataclasses import dataclass

from ortoo.common.errors import Conflict, Invalid, Unavailable
from ortoo.common.grpc.bulk_field import Bulky
from ortoo.common.grpc.errors import Context
from ortoo.common.grpc.messages import read, write
from ortoo.enode.replication.driver import Driver
from ortoo.enode.replication.membership import Joining
from ortoo.enode.replication.protocol.identity import MemberId
from ortoo.enode.rpc.replicas.message_codec import decode_word, is_answered
from ortoo.v1 import member_report_pb2
from ortoo.v1 import members_pb2 as pb
from ortoo.v1.members_pb2_grpc import MemberServiceServicer

NAME = "ortoo.v1.MemberService"


@dataclass(eq=False)
class MemberService(MemberServiceServicer):
    """Receives the other replicas' messages for this process."""

    cluster: str
    enode: str
    joining: Joining
    listener: Driver | None = None
    """Receives the messages; None while the log is being opened."""

    async def Speak(  # type: ignore[override]  # see bulk_calls
        self, request_iterator: AsyncIterator[Bulky], context: Context
    ) -> AsyncIterator[pb.SpeakResponse]:
        """Receive messages one after another."""
        opening = await anext(aiter(request_iterator), None)
        if opening is None:
            return
        first: pb.MemberMessage = opening.message
        self._check(first.set_id, read(MemberId, first.to), "to")
        yield pb.SpeakResponse()
        async for message, (content,) in request_iterator:
            word = decode_word(message, content)
            if word is not None and self.listener is not None:
                self.listener.post(word)
            needs_answer = word is None or is_answered(word)
            del message, content, word
            if needs_answer:
                yield pb.SpeakResponse()

    async def CopyFrame(self, request: pb.CopyFrameRequest, context: Context) -> pb.CopyFrameResponse:
        """Return the frame of this disk at a position."""
        self._check(request.set_id, read(MemberId, request.of), "of")
        if self.listener is None:
            raise Unavailable("this replica is opening its log", field="of")
        return pb.CopyFrameResponse(content=await self.listener.copy_of(request.position))

    def _check(self, set_id: str, member: MemberId, field: str) -> None:
        kept = self.joining.kept
        if set_id != kept.set_id:
            raise Conflict(f"this replica is of set {kept.set_id or '(none yet)'}, not of {set_id}", field="set_id")
        if member != kept.member:
            raise Conflict(
                f"this is replica {kept.member.number} with disk {kept.member.disk}, not replica {member.number} with "
                f"disk {member.disk}",
                field=field,
            )

    async def Join(self, request: pb.JoinRequest, context: Context) -> pb.JoinResponse:
        """Join a replica set."""
        if (request.cluster, request.enode) != (self.cluster, self.enode):
            raise Invalid(
                f"this is enode {self.enode!r} of cluster {self.cluster!r}, not {request.enode!r} of "
                f"{request.cluster!r}",
                field="enode",
            )
        if not request.set_id:
            raise Invalid("expected the id of a replica set", field="set_id")
        member = await self.joining.join(request.set_id, request.created_at_ms, asks_only=request.asks_only)
        return pb.JoinResponse(member=write(member_report_pb2.MemberId, member))
