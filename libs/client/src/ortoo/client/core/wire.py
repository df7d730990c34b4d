"""Conversions between plain values and protobuf, where names differ or performance matters."""

from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

from ortoo.client.core.filters import Filter, filter_expressions
from ortoo.client.core.queues import Queue
from ortoo.common.errors import Invalid
from ortoo.common.errors.findings import process_version
from ortoo.v1 import consumer_pb2, pull_pb2, topic_pb2

if TYPE_CHECKING:
    from ortoo.client.core.received import BatchOwner, ReceivedBatch

LANGUAGE = "python"

client_version = partial(process_version, "ortoo-client")
"""The version of this client, as text."""


_shared_id = lru_cache(maxsize=256)(int)
"""The same object for the same id. A consumer may hold a hundred thousand batches of a few topics and producers."""


# fields of requests


def wire_queue(queue: Queue) -> topic_pb2.Queue:
    """Convert a queue to protobuf."""
    return topic_pb2.Queue(topic=queue.topic, enode=queue.enode, queue_id=queue.queue_id)


def subscription(topic: str, filter: Filter, version: int = 0) -> consumer_pb2.Subscription:
    """A subscription as protobuf.

    The server ignores a subscription whose `version` is older than the known version; 0 is never ignored.
    """
    tags, sql = filter_expressions(filter)
    return consumer_pb2.Subscription(topic=topic, tag_expression=tags, sql_expression=sql, version=version)


def start_from(from_beginning: bool, from_time_ms: int | None) -> "consumer_pb2.StartFrom.ValueType":
    """The start of a group without an offset, as protobuf."""
    if from_time_ms is not None:
        return consumer_pb2.START_FROM_TIME
    return consumer_pb2.START_FROM_FIRST if from_beginning else consumer_pb2.START_FROM_LAST


def message_model(*, broadcast: bool) -> "consumer_pb2.MessageModel.ValueType":
    """The message model as protobuf; broadcast = every member gets every message."""
    return consumer_pb2.MESSAGE_MODEL_BROADCAST if broadcast else consumer_pb2.MESSAGE_MODEL_CLUSTERING


# fields of responses


def queue_of(queue: topic_pb2.Queue) -> Queue:
    """Convert a queue from protobuf."""
    return Queue(queue.topic, queue.enode, queue.queue_id)


def received_batch(
    answer: "consumer_pb2.Delivery | consumer_pb2.FetchResponse | pull_pb2.PulledBatch",
    queue: Queue,
    records: bytes | None = None,
    *,
    generation: int = 0,
    owner: "BatchOwner | None" = None,
) -> "ReceivedBatch":
    """The batch of a response; `records` are the bytes of the batch if they came outside the protobuf message.

    The other arguments are those of `ReceivedBatch`.
    """
    # A process that only plans reads or sends messages does not need these modules, which are dear to import.
    from ortoo.client.core.received import ReceivedBatch
    from ortoo.common.grpc.bulk_calls import batch_of

    batch = answer.batch
    return ReceivedBatch(
        queue,
        batch_of(batch, records, producer_id=_shared_id(batch.producer_id)),
        topic_id=_shared_id(answer.topic_id),
        first_offset=answer.first_offset,
        next_offset=answer.next_offset,
        stored_at_ms=answer.stored_at_ms,
        rows=answer.rows,
        row_stored_at_ms=getattr(answer, "row_stored_at_ms", b""),
        generation=generation,
        owner=owner,
    )


class EnumNames:
    """Names for the values of a protobuf enum: in lower case, without the common prefix."""

    def __init__(self, field: str, enum: Any, *, unspecified: str = "", separator: str = "_") -> None:
        """Errors name `field`. `unspecified` is the name of the value 0; empty = the value 0 cannot be chosen."""
        prefix = enum.Name(0).removesuffix("UNSPECIFIED")
        names = {number: key.removeprefix(prefix) for key, number in enum.items()} | {0: unspecified}
        self._field = field
        self._names: dict[int, str] = {at: name.lower().replace("_", separator) for at, name in names.items() if name}
        self._numbers = {name: number for number, name in self._names.items()}

    def number(self, name: str) -> Any:
        """The number of the enum value with this name. Errors: Invalid, whose text lists the valid names."""
        if name not in self._numbers:
            raise Invalid(f"{name!r}; expected {', '.join(self._numbers)}", field=self._field)
        return self._numbers[name]

    def name(self, number: int) -> str:
        """The name of the enum value with this number; "unknown" if this client does not know the value."""
        return self._names.get(number, "unknown")
