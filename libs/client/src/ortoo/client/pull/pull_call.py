"""One pull: messages of a queue from an offset, and whether the queue has this offset."""

from dataclasses import dataclass
from enum import Enum
from functools import partial

from ortoo.client.core.closed import running_loop_check
from ortoo.client.core.connection import Connection
from ortoo.client.core.filters import Filter, filter_expressions
from ortoo.client.core.queues import Queue
from ortoo.client.core.received import BatchOwner, OnFinished, ReceivedBatch
from ortoo.client.core.wire import EnumNames, received_batch, wire_queue
from ortoo.client.requests.replies import send_reply
from ortoo.common.grpc.enum_values import known_or
from ortoo.v1 import pull_pb2
from ortoo.v1.consumer_pb2_grpc import ConsumerServiceStub

_STATUSES = EnumNames("status", pull_pb2.PullStatus)
RESPONSE_TIMEOUT_S = 15.0
"""Time limit of the answer after the end of a long poll."""


class PullStatus(Enum):
    """The kind of result of a pull."""

    FOUND = "found"
    """Messages were returned."""
    NO_NEW = "no_new"
    """The offset is the end of the queue."""
    NO_MATCH = "no_match"
    """The filter matched none of the messages."""
    OFFSET_ILLEGAL = "offset_illegal"
    """The offset is not stored; `next_offset` is the nearest one that is."""


@dataclass(frozen=True, slots=True)
class PullResult:
    """The result of a pull."""

    status: PullStatus
    next_offset: int
    """The next offset to pull."""
    begin_offset: int
    """The first offset still stored."""
    end_offset: int
    """The next offset to be stored."""
    batches: tuple[ReceivedBatch, ...] = ()
    commit_soon: bool = False
    """Whether the next messages follow only when these are committed."""


async def pull(
    connection: Connection,
    group: str,
    queue: Queue,
    offset: int,
    *,
    messages_max: int = 32,
    bytes_max: int = 0,
    wait_ms: float = 0.0,
    filter: Filter = "*",
    generation: int = 0,
    on_finished: OnFinished | None = None,
) -> PullResult:
    """Pull once through the current snode. At the end of the queue the server waits up to `wait_ms`.

    Errors: NotFound, Invalid, Conflict, Fenced when the lock of `generation` is lost, Unavailable.
    """
    tags, sql = filter_expressions(filter)
    request = pull_pb2.PullRequest(
        group=group,
        queue=wire_queue(queue),
        offset=offset,
        messages_max=messages_max,
        bytes_max=bytes_max,
        wait_ms=int(wait_ms),
        tag_expression=tags,
        sql_expression=sql,
        generation=generation,
    )
    answer = await connection.call_at(
        connection.address,
        ConsumerServiceStub,
        "Pull",
        request,
        timeout_s=wait_ms / 1000 + RESPONSE_TIMEOUT_S,
    )
    # `next_offset` continues the pull whatever a newer server's status means.
    default = PullStatus.FOUND if answer.batches else PullStatus.NO_NEW
    status = known_or(PullStatus, _STATUSES.name(answer.status), default)
    owner = BatchOwner(
        on_finished=on_finished,
        check_use=None if on_finished is None else running_loop_check(),
        reply_call=partial(send_reply, connection),
    )
    batches = tuple(received_batch(it, queue, generation=generation, owner=owner) for it in answer.batches)
    positions = (answer.next_offset, answer.begin_offset, answer.end_offset)
    return PullResult(status, *positions, batches, answer.commit_soon)
