"""One pull: messages of a queue from an offset on, and what the server says about the offset."""

from dataclasses import dataclass
from enum import Enum

from ortoo.client.core.connection import Connection
from ortoo.client.core.filters import Filter, expressions
from ortoo.client.core.place import Queue
from ortoo.client.core.received import Finished, ReceivedBatch
from ortoo.client.core.wire import EnumNames, received_batch, wire_queue
from ortoo.common.errors import Internal
from ortoo.v1 import pull_pb2
from ortoo.v1.consumer_pb2_grpc import ConsumerServiceStub

_STATUSES = EnumNames("status", pull_pb2.PullStatus)
ANSWER_TIMEOUT_S = 15.0
"""How long after the end of a long poll the answer may come."""


class PullStatus(Enum):
    """What a pull brought, in one word."""

    FOUND = "found"
    """Messages."""
    NO_NEW = "no_new"
    """The queue ends here."""
    NO_MATCH = "no_match"
    """Messages came, none of them wanted."""
    OFFSET_ILLEGAL = "offset_illegal"
    """The offset is not stored: `next_offset` is the nearest one that is."""


@dataclass(frozen=True, slots=True)
class Pulled:
    """What a pull brought."""

    status: PullStatus
    next_offset: int
    """Where to pull next."""
    begin_offset: int
    """The first offset still stored."""
    end_offset: int
    """The next offset to be stored."""
    batches: tuple[ReceivedBatch, ...] = ()


async def pull(
    connection: Connection,
    group: str,
    queue: Queue,
    offset: int,
    *,
    messages_max: int = 32,
    bytes_max: int = 0,
    wait_ms: float = 0.0,
    wanted: Filter = "*",
    generation: int = 0,
    finished: Finished | None = None,
) -> Pulled:
    """Pull once, through the snode that is asked now. At the end of the queue the server waits up to `wait_ms`.

    Errors: NotFound, Invalid, Conflict, Fenced when the lock of `generation` is lost, Unavailable.
    """
    tags, sql = expressions(wanted)
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
        timeout_s=wait_ms / 1000 + ANSWER_TIMEOUT_S,
    )
    try:
        status = PullStatus(_STATUSES.name(answer.status))
    except ValueError:
        told = f"a pull was answered with the status {answer.status}, which this client does not know"
        raise Internal(told) from None
    batches = tuple(received_batch(it, queue, generation=generation, finished=finished) for it in answer.batches)
    return Pulled(status, answer.next_offset, answer.begin_offset, answer.end_offset, batches)
