"""FindMessages."""

from ortoo.enode.store.store import Store
from ortoo.v1 import enode_pb2


async def find_messages(store: Store, request: enode_pb2.FindMessagesRequest) -> enode_pb2.FindMessagesResponse:
    """Where messages with a key or an id lie."""
    found = await store.find_messages(
        request.topic_id,
        key=request.key,
        message_id=request.message_id,
        begin_ms=request.begin_ms,
        end_ms=request.end_ms,
        limit=request.limit,
    )
    return enode_pb2.FindMessagesResponse(
        places=[
            enode_pb2.MessagePlace(queue_id=one.queue_id, offset=one.offset, stored_at_ms=one.stored_at_ms)
            for one in found
        ]
    )
