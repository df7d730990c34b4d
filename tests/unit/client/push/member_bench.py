"""A push member with a simulated server."""

from typing import Any

from ortoo.client.core.queues import Queue
from ortoo.client.core.wire import wire_queue
from ortoo.client.offsets.losses import LossLog
from ortoo.client.offsets.start_point import StartRule
from ortoo.client.offsets.store import LocalOffsets
from ortoo.client.push.push_member import PushMember
from ortoo.common.grpc.bulk_field import BulkMessage
from ortoo.common.records.batch import encode
from ortoo.common.records.message import Message
from ortoo.v1 import consumer_pb2 as pb
from ortoo.v1 import record_pb2

A, B = Queue("t", "e", 0), Queue("t", "e", 1)
MESSAGES_MAX, BYTES_MAX = 1_000, 1 << 20


class Server:
    """The responses to a member, and its requests."""

    def __init__(self, broadcast: LocalOffsets | None = None) -> None:
        connection: Any = None
        opening, limits = pb.OpenSession(group="g"), {"messages_max": MESSAGES_MAX, "bytes_max": BYTES_MAX}
        self.member = PushMember(
            connection, opening, LossLog(None), **limits, broadcast=broadcast, start_rule=StartRule()
        )
        self.generation = 0
        self.open()

    def open(self) -> None:
        """Open another session."""
        said: Any = self
        self.messages = self.size_bytes = 0
        """The credit that the server has."""
        self.acknowledged: list[tuple[int, int, int]] = []
        self.suspended: set[int] = set()
        self.member._on_stream_end()
        self.member._stream = said
        self.member._send_opening()
        assert (self.messages, self.size_bytes) == (MESSAGES_MAX, BYTES_MAX)

    def send(self, request: pb.PushRequest) -> None:
        """Handle a request of the member."""
        self.messages += request.credit.messages
        self.size_bytes += request.credit.bytes
        if request.HasField("suspend"):
            self.suspended = {one.queue_id for one in request.suspend.queues}
        for one in request.commit.offsets:
            self.acknowledged.append((one.queue.queue_id, one.offset, one.generation))

    def assign(self, *queues: Queue) -> None:
        """Assign these queues."""
        self.generation += 1
        assignment = pb.Assignment(generation=self.generation, queues=map(wire_queue, queues))
        self.member._on_response(BulkMessage(pb.PushResponse(assignment=assignment), (b"",)))

    def deliver(
        self, queue: Queue, first_offset: int, count: int, message_group: str | None = None, *, topic_id: int = 77
    ) -> None:
        """Deliver a number of messages."""
        sealed = encode([Message(b"x" * 50, message_group=message_group)] * count, now_ms=1)
        self.messages -= count
        self.size_bytes -= len(sealed.records)
        delivery = pb.Delivery(
            queue=wire_queue(queue),
            topic_id=topic_id,
            first_offset=first_offset,
            next_offset=first_offset + count,
            generation=self.generation,
            batch=record_pb2.SealedBatch(
                count=count, records_crc32c=sealed.records_crc32c, body_inflated_bytes=sealed.body_inflated_bytes
            ),
        )
        self.member._on_response(BulkMessage(pb.PushResponse(delivery=delivery), (sealed.records,)))

    @property
    def all_is_back(self) -> bool:
        """Whether the server has the same credit as at the start."""
        self.member.report_progress()
        return (self.messages, self.size_bytes) == (MESSAGES_MAX, BYTES_MAX)
