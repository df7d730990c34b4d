"""CommitOffsets, QueryOffsets, QueryOffsetGroups and FindOffset."""

from ortoo.common.cluster.names import check_group_name
from ortoo.common.errors import Invalid
from ortoo.enode.changes.lives import Mode
from ortoo.enode.store.store import Store
from ortoo.v1 import enode_pb2

OFFSETS_MAX = 10_000
"""How many queues one commit may name."""


async def commit_offsets(store: Store, request: enode_pb2.CommitOffsetsRequest) -> enode_pb2.CommitOffsetsResponse:
    """Store the offsets; without generations of their own all or none."""
    check_group_name(request.group)
    if not 1 <= len(request.offsets) <= OFFSETS_MAX:
        raise Invalid(f"{len(request.offsets)} offsets; give 1 to {OFFSETS_MAX}", field="offsets")
    offsets = {item.queue_id: item.offset for item in request.offsets}
    if len(offsets) != len(request.offsets):
        raise Invalid("a queue is named twice; give each queue one offset", field="offsets")
    if request.reset:
        await store.reset_offsets(request.topic_id, request.group, offsets)
        return enode_pb2.CommitOffsetsResponse()
    await store.modes.use(request.topic_id, request.group, Mode.OFFSETS)
    if any(item.generation for item in request.offsets):
        rows = [(item.queue_id, item.offset, item.generation or request.generation) for item in request.offsets]
        fenced = await store.commit_each(request.topic_id, request.group, rows)
        return enode_pb2.CommitOffsetsResponse(fenced_queue_ids=fenced)
    else:
        await store.commit_offsets(request.topic_id, request.group, offsets, request.generation)
    return enode_pb2.CommitOffsetsResponse()


def query_offsets(store: Store, request: enode_pb2.QueryOffsetsRequest) -> enode_pb2.QueryOffsetsResponse:
    """What the group has committed."""
    check_group_name(request.group)
    offsets = store.query_offsets(request.topic_id, request.group, request.queue_ids)
    return enode_pb2.QueryOffsetsResponse(
        offsets=[enode_pb2.QueueOffset(queue_id=queue, offset=offset) for queue, offset in sorted(offsets.items())]
    )


def query_offset_groups(
    store: Store, request: enode_pb2.QueryOffsetGroupsRequest
) -> enode_pb2.QueryOffsetGroupsResponse:
    """The groups that have committed in a topic."""
    return enode_pb2.QueryOffsetGroupsResponse(groups=store.offset_groups(request.topic_id))


async def find_offset(store: Store, request: enode_pb2.FindOffsetRequest) -> enode_pb2.FindOffsetResponse:
    """The first offset stored at or after a time."""
    return enode_pb2.FindOffsetResponse(
        offset=await store.find_offset(request.topic_id, request.queue_id, request.stored_at_ms)
    )
