"""RecallDelayed and ListDelayed."""

from ortoo.common.errors import Invalid
from ortoo.enode.deferred.delays import Delays
from ortoo.v1 import enode_deferred_pb2

LIMIT_DEFAULT = 100
LIMIT_MAX = 10_000


async def recall_delayed(
    delays: Delays, request: enode_deferred_pb2.RecallDelayedRequest
) -> enode_deferred_pb2.RecallDelayedResponse:
    """Forget a delayed message."""
    await delays.recall(request.topic_id, request.timer_id, request.deliver_at_ms)
    return enode_deferred_pb2.RecallDelayedResponse()


def list_delayed(
    delays: Delays, request: enode_deferred_pb2.ListDelayedRequest
) -> enode_deferred_pb2.ListDelayedResponse:
    """The delayed messages of a topic."""
    if request.limit > LIMIT_MAX:
        raise Invalid(f"{request.limit}; at most {LIMIT_MAX}", field="limit")
    listed = delays.listed(request.topic_id, request.from_ms, request.limit or LIMIT_DEFAULT)
    return enode_deferred_pb2.ListDelayedResponse(
        entries=[
            enode_deferred_pb2.DelayedEntry(
                timer_id=one.timer_id, queue_id=one.queue_id, deliver_at_ms=one.deliver_at_ms
            )
            for one in listed
        ]
    )
