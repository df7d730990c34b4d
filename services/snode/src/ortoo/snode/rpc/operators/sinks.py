"""AdminService for the accounts of exactly-once sinks."""

from dataclasses import dataclass

from ortoo.common.errors import Invalid
from ortoo.common.grpc.errors import Context
from ortoo.common.grpc.messages import write
from ortoo.snode.pull import PullComponents
from ortoo.snode.pull.sinks import PlacedSink
from ortoo.v1 import admin_pb2_grpc
from ortoo.v1 import sink_pb2 as pb


@dataclass(kw_only=True, eq=False)
class SinkAdminHandlers(admin_pb2_grpc.AdminServiceServicer):
    """The calls of AdminService about exactly-once sinks."""

    pull: PullComponents

    async def ListSinks(self, request: pb.ListSinksRequest, context: Context) -> pb.ListSinksResponse:
        """The sinks of a topic, or of all topics."""
        found, unreachable = await self.pull.sinks.list_all(request.topic, request.sink_id)
        return pb.ListSinksResponse(sinks=map(_encode_sink, found), unreachable_enodes=unreachable)

    async def ResetSink(self, request: pb.ResetSinkRequest, context: Context) -> pb.ResetSinkResponse:
        """Refuse the query of a sink, and allow another one."""
        if not request.topic:
            raise Invalid("is missing; give the topic of the sink", field="topic")
        return pb.ResetSinkResponse(sink=_encode_sink(await self.pull.sinks.reset(request.topic, request.sink_id)))


def _encode_sink(one: PlacedSink) -> pb.Sink:
    account, stored = one.account, one.stored
    return write(
        pb.Sink,
        stored.sink,
        topic=one.topic,
        batch_id=account.batch_id,
        changed_at_ms=stored.changed_at_ms,
        reset=account.is_reset,
        account=stored.group,
        enode=one.enode,
    )
