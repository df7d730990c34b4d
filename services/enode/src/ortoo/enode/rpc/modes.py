"""UseDeliveryMode, SetStoredMode and QueryModes."""

from ortoo.common.cluster.names import check_group_name
from ortoo.common.errors import Invalid
from ortoo.common.grpc.errors import Context
from ortoo.enode.changes.groups import Mode
from ortoo.enode.rpc.handlers import Handlers
from ortoo.v1 import enode_lives_pb2 as pb


class ModeHandlers(Handlers):
    """How groups consume topics."""

    async def UseDeliveryMode(self, request: pb.UseDeliveryModeRequest, context: Context) -> pb.UseDeliveryModeResponse:
        """A group is about to consume a topic."""
        await self.topics.arrival(request.topic_id)
        check_group_name(request.group)
        mode = _mode(request.mode)
        if mode is Mode.UNDECIDED:
            raise Invalid("say how the group consumes the topic", field="mode")
        await self.store.modes.use(request.topic_id, request.group, mode)
        return pb.UseDeliveryModeResponse()

    async def SetStoredMode(self, request: pb.SetStoredModeRequest, context: Context) -> pb.SetStoredModeResponse:
        """An operator says how a group consumes a topic."""
        await self.topics.arrival(request.topic_id)
        check_group_name(request.group)
        mode = _mode(request.mode)
        before = await self.pops.change_mode(request.topic_id, request.group, mode, force=request.force)
        return pb.SetStoredModeResponse(before=before.value)  # type: ignore[arg-type]

    async def QueryModes(self, request: pb.QueryModesRequest, context: Context) -> pb.QueryModesResponse:
        """How a group consumes the topics of this enode."""
        check_group_name(request.group)
        modes = self.store.modes.of_group(request.group)
        stored = [pb.StoredMode(topic_id=topic_id, mode=mode.value) for topic_id, mode in modes]  # type: ignore[arg-type]
        return pb.QueryModesResponse(modes=stored)


def _mode(number: int) -> Mode:
    """A mode, read. Errors: Invalid for one that this version does not know."""
    try:
        return Mode(number)
    except ValueError:
        raise Invalid(f"{number} is no delivery mode that this version knows", field="mode") from None
