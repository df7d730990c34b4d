"""Received batches; their messages are decoded lazily."""

import struct
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from functools import lru_cache

from ortoo.client.core.progress import BatchProgress
from ortoo.client.core.queues import Queue
from ortoo.common.errors import Invalid, Unsupported
from ortoo.common.groups.group_topics import RETRY_PREFIX, group_of_topic
from ortoo.common.groups.pop import run_of
from ortoo.common.groups.requests import RequestOptions, request_of
from ortoo.common.records.columns import BORN_AT, KEYS, MESSAGE_GROUP, MESSAGE_ID, PROPERTIES, TAG, TRACE_CONTEXT
from ortoo.common.records.message import Message
from ortoo.common.records.message_id import message_id_text
from ortoo.common.records.sealed_batch import SealedBatch
from ortoo.common.records.text_rules import RECONSUME_TIMES, RETRY_TOPIC, trace_context_of, whole_number
from ortoo.common.records.view import RecordBatchView, open_batch

ReplyCall = Callable[[str, RequestOptions, int | None, Message | bytes], Awaitable[bool]]
"""Sends a reply: (topic and options of the request, time of its creation, reply)."""
OnFinished = Callable[["ReceivedBatch", int], None]
_all_rows = lru_cache(maxsize=64)(range)
"""The rows of a whole batch. Consumers may hold a hundred thousand batches, most of them with one message."""


def _row_numbers(rows: bytes) -> Sequence[int]:
    """Row numbers of int32 each. Those without a gap are a range, because most callers then need no loop over rows."""
    numbers = struct.unpack(f"<{len(rows) // 4}i", rows)
    return run_of(numbers) or numbers


class BatchOwner:
    """The consumer of batches, as they see it. The batches of a queue share one, because they may be many."""

    __slots__ = ("check_current", "check_use", "on_finished", "reply_call")

    def __init__(
        self,
        *,
        on_finished: OnFinished | None = None,
        check_current: Callable[[], bool] | None = None,
        check_use: Callable[[], None] | None = None,
        reply_call: ReplyCall | None = None,
    ) -> None:
        """`on_finished` is called for acknowledgements; `check_current` returns whether the consumer owns the queue.

        `check_use` refuses acknowledgements in another thread than the consumer's. `reply_call` sends replies to
        requests; None = this reader cannot reply.
        """
        self.on_finished = on_finished
        self.check_current = check_current
        self.check_use = check_use
        self.reply_call = reply_call


_NO_OWNER = BatchOwner()


class ReceivedBatch:
    """Messages of one queue in offset order, as their producer encoded them."""

    __slots__ = (
        "_columns",
        "_rows",
        "_sealed",
        "_view",
        "first_offset",
        "generation",
        "next_offset",
        "owner",
        "progress",
        "queue",
        "row_stored_at_ms",
        "stored_at_ms",
        "topic_id",
    )

    def __init__(
        self,
        queue: Queue,
        sealed: SealedBatch,
        *,
        topic_id: int,
        first_offset: int,
        next_offset: int,
        stored_at_ms: int,
        rows: bytes = b"",
        row_stored_at_ms: bytes = b"",
        generation: int = 0,
        owner: BatchOwner | None = None,
    ) -> None:
        """`rows`: the rows of the stored batch, as int32; empty = all rows. Row 0 has the offset `first_offset`.

        `row_stored_at_ms`: the store time of each row, as int64; empty = all were stored at `stored_at_ms`.
        `owner` is the consumer that acknowledges the batch and replies to requests; None = there is none.
        """
        self.queue = queue
        self.topic_id = topic_id
        self.first_offset = first_offset
        self.next_offset = next_offset
        """The start of the next batch of the queue."""
        self.stored_at_ms = stored_at_ms
        self.row_stored_at_ms = row_stored_at_ms
        """Store times of each message as int64, if they come from several stored batches; otherwise empty."""
        self.generation = generation
        self._sealed = sealed
        self._rows = _row_numbers(rows) if rows else _all_rows(sealed.count)
        self._columns: Sequence[int] = self._rows
        """Column index of each message. A batch that holds only the selected rows is indexed from 0."""
        if rows and len(self._rows) == sealed.count:
            self._columns = _all_rows(sealed.count)
        self.owner = owner or _NO_OWNER
        self._view: RecordBatchView | None = None
        self.progress = BatchProgress(self._rows, next_offset, self.size_bytes, first_offset=first_offset)

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator["ReceivedMessage"]:
        return (ReceivedMessage(self, index) for index in range(len(self._rows)))

    def __getitem__(self, index: int) -> "ReceivedMessage":
        return ReceivedMessage(self, range(len(self._rows))[index])

    @property
    def offsets(self) -> Sequence[int]:
        """The offset of each message."""
        rows, first = self._rows, self.first_offset
        if isinstance(rows, range):
            return range(first + rows.start, first + rows.stop)
        return [first + row for row in rows]

    @property
    def size_bytes(self) -> int:
        """Encoded size of the batch."""
        return len(self._sealed.records)

    @property
    def is_current(self) -> bool:
        """Whether this consumer still owns the queue. If it does not, the messages are delivered again."""
        check = self.owner.check_current
        return check is None or check()

    @property
    def sealed(self) -> SealedBatch:
        """The encoded batch, which may include rows that the filter excluded."""
        return self._sealed

    @property
    def view(self) -> RecordBatchView:
        """The columns of the batch, which may include rows that the filter excluded.

        Errors: Invalid and Unsupported when this client cannot decode them.
        """
        if self._view is None:
            self._view = open_batch(self._sealed)
        return self._view

    def bodies(self) -> list[bytes]:
        """All bodies."""
        bodies = self.view.bodies()
        return bodies if len(bodies) == len(self._rows) else [bodies[row] for row in self._columns]

    def messages(self) -> list[Message]:
        """All messages, with all fields that their producers set, so that they can be sent again."""
        stored = self.view.messages(None if len(self._rows) == self.view.count else self._columns)
        return [one.without_system_properties() for one in stored]

    def row(self, index: int) -> int:
        """The column index of the message at `index`."""
        return self._columns[index]

    def offset(self, index: int) -> int:
        """The offset of the message at `index`."""
        return self.first_offset + self._rows[index]

    def ack(self) -> None:
        """Acknowledge all messages of this batch; the group's offset moves past them soon.

        Errors: Conflict in another thread than the consumer's.
        """
        self._check_usable()
        self._finish(self.progress.finish_all())

    def ack_message(self, index: int) -> None:
        """Acknowledge the message at `index`; the group's offset stays before the first unacknowledged one.

        Errors: as `ack`.
        """
        self._check_usable()
        self._finish(self.progress.finish(index))

    def _check_usable(self) -> None:
        if (check := self.owner.check_use) is not None:
            check()

    def _finish(self, count: int) -> None:
        if count and (on_finished := self.owner.on_finished) is not None:
            on_finished(self, count)


class MessageFields:
    """One message of a batch; its fields are decoded from the columns on access."""

    __slots__ = ("_batch", "_index")

    def __init__(self, batch: ReceivedBatch, index: int) -> None:
        """The message at `index` of `batch`."""
        self._batch = batch
        self._index = index

    @property
    def body(self) -> bytes:
        """The content."""
        return self._batch.view.body(self._batch.row(self._index))

    @property
    def tag(self) -> str | None:
        """The tag, if it has one."""
        return self._batch.view.values(TAG)[self._batch.row(self._index)]

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys."""
        return self._batch.view.values(KEYS)[self._batch.row(self._index)]

    @property
    def properties(self) -> Mapping[str, str]:
        """The properties."""
        return self._batch.view.values(PROPERTIES)[self._batch.row(self._index)]

    @property
    def message_group(self) -> str | None:
        """The message group, if it has one."""
        return self._batch.view.values(MESSAGE_GROUP)[self._batch.row(self._index)]

    @property
    def trace_context(self) -> str | None:
        """The W3C trace context that the producer sent, in this field or in the property `traceparent`."""
        own = self._batch.view.values(TRACE_CONTEXT)[self._batch.row(self._index)]
        return trace_context_of(own, self.properties)

    @property
    def born_at_ms(self) -> int | None:
        """Creation time at the producer, milliseconds since 1970-01-01 UTC."""
        return self._batch.view.values(BORN_AT)[self._batch.row(self._index)]

    @property
    def message_id(self) -> str:
        """The id that the producer chose, or an id made of topic, queue and offset."""
        chosen = self._batch.view.values(MESSAGE_ID)[self._batch.row(self._index)]
        queue = self.queue
        return chosen or message_id_text(self._batch.topic_id, queue.enode, queue.queue_id, self.offset)

    @property
    def stored_at_ms(self) -> int:
        """Store time, milliseconds since 1970-01-01 UTC."""
        times = self._batch.row_stored_at_ms
        return struct.unpack_from("<q", times, 8 * self._index)[0] if times else self._batch.stored_at_ms

    @property
    def queue(self) -> Queue:
        """The queue that holds the message."""
        return self._batch.queue

    @property
    def topic(self) -> str:
        """The topic of the message."""
        return self._batch.queue.topic

    @property
    def topic_id(self) -> int:
        """The topic id of the message; a topic created again under the same name has another topic id."""
        return self._batch.topic_id

    @property
    def origin_topic(self) -> str:
        """The topic to which the message was sent; for a message in the retry topic it differs from `topic`."""
        # In other topics a producer may have chosen the property, before servers refused it.
        topic = self.queue.topic
        return self.properties.get(RETRY_TOPIC, topic) if group_of_topic(topic) is not None else topic

    @property
    def attempt(self) -> int:
        """The number of this delivery to the group, from 1. Only deliveries through the retry topic are counted."""
        times = self.properties.get(RECONSUME_TIMES, "") if self.queue.topic.startswith(RETRY_PREFIX) else ""
        return (whole_number(times) or 0) + 1

    @property
    def request(self) -> RequestOptions | None:
        """The options of a request, if the sender of this message waits for a reply; otherwise None."""
        return request_of(self.properties)

    async def reply(self, reply: Message | bytes) -> bool:
        """Reply to this request; returns whether the requester still waited. The requester gets only the first reply.

        Retries until the timeout of the request. The message still has to be acknowledged.

        Errors: Invalid if the message is no request, Unsupported if it was read outside a consumer. Forbidden without
        the permission to consume the topic. Unavailable if the requester did not confirm the reply in time.
        """
        request, call = self.request, self._batch.owner.reply_call
        if request is None:
            raise Invalid("this message is no request and has no requester; check `request` before `reply`")
        if call is None:
            raise Unsupported("this message was read outside a consumer; only a consumer can reply")
        return await call(self.origin_topic, request, self.born_at_ms, reply)

    @property
    def offset(self) -> int:
        """The offset of the message in its queue."""
        return self._batch.offset(self._index)

    def message(self) -> Message:
        """The message with all fields that its producer set, so that it can be sent again.

        `properties` of this object also has the properties that only servers write, such as the reason of a dead
        letter.
        """
        return self.stored_message().without_system_properties()

    def stored_message(self) -> Message:
        """The message as it is stored, with the properties that only servers write. A client cannot send these."""
        return self._batch.view.message(self._batch.row(self._index))


class ReceivedMessage(MessageFields):
    """One message of a push or pull consumer."""

    __slots__ = ("_local_attempts",)

    def __init__(self, batch: ReceivedBatch, index: int) -> None:
        """The message at `index` of `batch`."""
        self._batch = batch
        self._index = index
        self._local_attempts = 0

    @property
    def attempt(self) -> int:
        """The number of the group's attempts of this message, by all members and including this attempt."""
        return max(super().attempt, self._local_attempts + 1)

    def set_local_attempts(self, attempts: int) -> None:
        """Set the number of failed attempts, for a consumer that keeps a message and retries it."""
        self._local_attempts = attempts

    @property
    def is_current(self) -> bool:
        """Whether this consumer still owns the queue. If not, the message is delivered again."""
        return self._batch.is_current

    def ack(self) -> None:
        """Acknowledge the message as processed."""
        self._batch.ack_message(self._index)
