"""ReplicationService: messages from the other replicas."""

from collections.abc import AsyncIterator
from dataclasses import dataclass

from ortoo.common.errors import Conflict, Invalid, Unavailable
from ortoo.common.grpc.bulk_field import BulkMessage
from ortoo.common.grpc.errors import Context
from ortoo.common.grpc.messages import read, write
from ortoo.enode.replication.driver import Driver
from ortoo.enode.replication.membership import ReplicaMembership
from ortoo.enode.replication.protocol.identity import ReplicaId
from ortoo.enode.rpc.replicas.message_codec import decode_message, needs_response
from ortoo.v1 import replica_report_pb2
from ortoo.v1 import replication_pb2 as pb
from ortoo.v1.replication_pb2_grpc import ReplicationServiceServicer

NAME = "ortoo.v1.ReplicationService"


@dataclass(eq=False)
class ReplicaService(ReplicationServiceServicer):
    """Receives the other replicas' messages for this process."""

    cluster: str
    enode: str
    membership: ReplicaMembership
    driver: Driver | None = None
    """Receives the messages; None while the log is being opened."""

    async def Exchange(  # type: ignore[override]  # see bulk_calls
        self, request_iterator: AsyncIterator[BulkMessage], context: Context
    ) -> AsyncIterator[pb.ExchangeResponse]:
        """Receive messages one after another."""
        opening = await anext(aiter(request_iterator), None)
        if opening is None:
            return
        first: pb.ReplicaMessage = opening.message
        self._check(first.set_id, read(ReplicaId, first.recipient), "to")
        yield pb.ExchangeResponse()
        async for message, (content,) in request_iterator:
            word = decode_message(message, content)
            if word is not None and self.driver is not None:
                self.driver.post(word)
            needs_answer = word is None or needs_response(word)
            del message, content, word
            if needs_answer:
                yield pb.ExchangeResponse()

    async def CopyFrame(self, request: pb.CopyFrameRequest, context: Context) -> pb.CopyFrameResponse:
        """Return the frame at a position of this replica's log."""
        self._check(request.set_id, read(ReplicaId, request.source), "source")
        if self.driver is None:
            raise Unavailable("this replica is opening its log", field="source")
        return pb.CopyFrameResponse(content=await self.driver.frame_copy(request.position))

    def _check(self, set_id: str, replica: ReplicaId, field: str) -> None:
        stored = self.membership.stored
        if set_id != stored.set_id:
            raise Conflict(f"this replica is of set {stored.set_id or '(none yet)'}, not of {set_id}", field="set_id")
        if replica != stored.replica:
            raise Conflict(
                f"this is replica {stored.replica.number} with disk {stored.replica.disk}, not replica "
                f"{replica.number} with "
                f"disk {replica.disk}",
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
        replica = await self.membership.join(request.set_id, request.created_at_ms, dry_run=request.dry_run)
        return pb.JoinResponse(replica=write(replica_report_pb2.ReplicaId, replica))
