"""Positions in the queues of a topic, for requests that move offsets."""

from collections.abc import Mapping
from typing import Any

from ortoo.client.core.queues import Queue
from ortoo.client.core.wire import wire_queue
from ortoo.common.errors import Invalid
from ortoo.v1 import client_pb2, consumer_pb2


def offset_target(time_ms: int | None, offset: int | None, offsets: Mapping[Queue, int] | None) -> dict[str, Any]:
    """The field `target` of a request that moves offsets. Errors: Invalid unless exactly one value is given."""
    given: dict[str, Any] = {"time_ms": time_ms, "offset": offset, "offsets": offsets}
    target = {name: value for name, value in given.items() if value is not None}
    if len(target) != 1:
        raise Invalid("expected exactly one of time_ms, offset and offsets", field="target")
    if offsets is not None:
        starts = [consumer_pb2.QueueStart(queue=wire_queue(queue), offset=at) for queue, at in offsets.items()]
        target["offsets"] = client_pb2.QueueStarts(starts=starts)
    return target
