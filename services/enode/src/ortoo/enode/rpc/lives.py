"""UseDeliveryMode, SetStoredMode, QueryModes and AppendIdentified."""

from ortoo.common.cluster.names import check_group_name
from ortoo.common.errors import Invalid
from ortoo.enode.changes.lives import Mode
from ortoo.enode.deferred.identified import IdentifiedIntake, Place
from ortoo.enode.pops.leasing import Leasing
from ortoo.enode.rpc.streams.append import batch_of
from ortoo.enode.store.store import Store
from ortoo.v1 import enode_lives_pb2 as pb


async def use_mode(store: Store, request: pb.UseDeliveryModeRequest) -> pb.UseDeliveryModeResponse:
    """A group is about to consume a topic."""
    check_group_name(request.group)
    mode = mode_of(request.mode)
    if mode is Mode.UNDECIDED:
        raise Invalid("say how the group consumes the topic", field="mode")
    await store.modes.use(request.topic_id, request.group, mode)
    return pb.UseDeliveryModeResponse()


async def set_mode(leasing: Leasing, request: pb.SetStoredModeRequest) -> pb.SetStoredModeResponse:
    """An operator says how a group consumes a topic."""
    check_group_name(request.group)
    before = await leasing.change_mode(request.topic_id, request.group, mode_of(request.mode), force=request.force)
    return pb.SetStoredModeResponse(before=before.value)  # type: ignore[arg-type]


def query_modes(store: Store, request: pb.QueryModesRequest) -> pb.QueryModesResponse:
    """How a group consumes the topics of this enode."""
    check_group_name(request.group)
    return pb.QueryModesResponse(
        modes=[
            pb.StoredMode(topic_id=topic_id, mode=mode.value)  # type: ignore[arg-type]
            for topic_id, mode in store.modes.of_group(request.group)
        ]
    )


async def append_identified(
    identified: IdentifiedIntake, request: pb.AppendIdentifiedRequest
) -> pb.AppendIdentifiedResponse:
    """Store messages by their ids."""
    batch = batch_of(request)
    batch.check()
    places = await identified.append(request.topic_id, request.queue_id, batch, request.ids)
    return pb.AppendIdentifiedResponse(places=map(_place, places))


def mode_of(number: int) -> Mode:
    """A mode, read. Errors: Invalid for one that this version does not know."""
    try:
        return Mode(number)
    except ValueError:
        raise Invalid(f"{number} is no delivery mode that this version knows", field="mode") from None


def _place(place: Place) -> pb.IdentifiedPlace:
    return pb.IdentifiedPlace(
        queue_id=place.queue_id, offset=place.offset, stored_at_ms=place.stored_at_ms, duplicate=place.duplicate
    )
