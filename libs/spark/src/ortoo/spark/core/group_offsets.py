"""Shows the progress of a query as offsets of a consumer group; the checkpoint remains authoritative."""

from collections.abc import Mapping

from ortoo.client import NotFound, Queue
from ortoo.client.core.wire import wire_queue
from ortoo.common.errors.status import error_of
from ortoo.common.groups.sinks import SinkIdentity
from ortoo.common.grpc.messages import write
from ortoo.spark.core.link import ClusterLink
from ortoo.v1 import pull_pb2, sink_pb2
from ortoo.v1.consumer_pb2_grpc import ConsumerServiceStub


def ensure_group(link: ClusterLink, group: str) -> None:
    """Create a group unless it exists, so that operators see it in lists."""
    try:
        link.run(link.admin.describe_group(group))
    except NotFound:
        link.run(link.admin.put_group(group))


def commit_group(link: ClusterLink, group: str, offsets: Mapping[Queue, int], sink: SinkIdentity | None = None) -> None:
    """Commit offsets for a group. `sink` names the sink whose account the group is.

    Errors: Unsupported with an older server, or the error of the first refused queue.
    """
    request = pull_pb2.CommitConsumerOffsetsRequest(
        group=group,
        offsets=[
            pull_pb2.ConsumerOffset(queue=wire_queue(queue), offset=offset) for queue, offset in sorted(offsets.items())
        ],
        sink=write(sink_pb2.SinkIdentity, sink) if sink is not None else None,
    )
    answer = link.call(ConsumerServiceStub, "CommitOffsets", request)
    for refused in answer.refused:
        raise error_of(refused.failure)


def group_offset(link: ClusterLink, group: str, queue: Queue) -> int:
    """The committed offset of a group in one queue; -1 if the group has none. Errors: those of the server."""
    request = pull_pb2.QueryConsumerOffsetsRequest(group=group, queues=[wire_queue(queue)])
    answer = link.call(ConsumerServiceStub, "QueryOffsets", request)
    for refused in answer.refused:
        raise error_of(refused.failure)
    return int(answer.offsets[0].offset) if answer.offsets else -1
