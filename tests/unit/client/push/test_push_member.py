"""A push consumer's place in its group: what it says of credit and offsets, whatever the server says."""

from types import SimpleNamespace
from typing import Any

from ortoo.client.core.place import Queue
from ortoo.client.core.wire import wire_queue
from ortoo.client.push.consumer import Consumer, ConsumerSettings
from ortoo.client.push.losses import Losses
from ortoo.client.push.push_member import PushMember
from ortoo.common.grpc.bulk_field import Bulky
from ortoo.common.records.batch import encode_bodies
from ortoo.v1 import consumer_pb2 as pb
from ortoo.v1 import record_pb2

A, B = Queue("t", "e", 0), Queue("t", "e", 1)
MESSAGES_MAX, BYTES_MAX = 1_000, 1 << 20


class Server:
    """What a member hears, and what it says."""

    def __init__(self) -> None:
        connection: Any = None
        self.member = PushMember(
            connection, pb.OpenSession(group="g"), Losses(None), messages_max=MESSAGES_MAX, bytes_max=BYTES_MAX
        )
        self.generation = 0
        self.open()

    def open(self) -> None:
        """Another session."""
        said: Any = self
        self.messages = self.size_bytes = 0
        """The credit that the server has."""
        self.acknowledged: list[tuple[int, int, int]] = []
        self.member._forget()
        self.member._conversation = said
        self.member._begin()
        assert (self.messages, self.size_bytes) == (MESSAGES_MAX, BYTES_MAX)

    def say(self, request: pb.PushRequest) -> None:
        """The member says something."""
        self.messages += request.credit.messages
        self.size_bytes += request.credit.bytes
        for one in request.acknowledge.offsets:
            self.acknowledged.append((one.queue.queue_id, one.offset, one.generation))

    def assign(self, *queues: Queue) -> None:
        """These are its queues now."""
        self.generation += 1
        assignment = pb.Assignment(generation=self.generation, queues=map(wire_queue, queues))
        self.member._hear(Bulky(pb.PushResponse(assignment=assignment), (b"",)))

    def deliver(self, queue: Queue, first_offset: int, count: int) -> None:
        """So many messages."""
        sealed = encode_bodies([b"x" * 50] * count, now_ms=1)
        self.messages -= count
        self.size_bytes -= len(sealed.records)
        delivery = pb.Delivery(
            queue=wire_queue(queue),
            first_offset=first_offset,
            next_offset=first_offset + count,
            generation=self.generation,
            batch=record_pb2.SealedBatch(count=count),
        )
        self.member._hear(Bulky(pb.PushResponse(delivery=delivery), (sealed.records,)))

    @property
    def all_is_back(self) -> bool:
        """Whether the server may send as much as at the begin."""
        self.member.report()
        return (self.messages, self.size_bytes) == (MESSAGES_MAX, BYTES_MAX)


async def test_the_credit_of_a_queue_that_goes_comes_back_whatever_the_application_does_with_its_messages() -> None:
    """Those it has may be acknowledged later, in part, or never: they are somebody else's by then."""
    server = Server()
    server.assign(A, B)
    for first_offset in (0, 4, 8):
        server.deliver(A, first_offset, 4)
    server.deliver(B, 0, 4)
    in_part, never, _ = [await server.member.next_batch() for _ in range(3)]
    in_part.ack_message(1)
    assert not server.all_is_back
    server.assign(B)
    in_part.ack_message(0)
    in_part.ack()
    kept = await server.member.next_batch()
    assert (kept.queue, never.is_current, kept.is_current) == (B, False, True)
    assert not server.all_is_back
    kept.ack()
    assert server.all_is_back
    assert server.acknowledged == [(1, 4, 2)]


async def test_what_is_lent_for_a_suspended_queue_that_goes_comes_back_once() -> None:
    """It came back already when the queue was suspended."""
    server = Server()
    server.assign(A, B)
    server.deliver(A, 0, 4)
    handed_out = await server.member.next_batch()
    server.deliver(A, 4, 4)
    server.member.suspend([A])
    server.assign(B)
    server.member.resume([A])
    assert server.all_is_back
    handed_out.ack()
    assert server.all_is_back


async def test_what_an_earlier_session_delivered_gives_no_credit_to_the_next() -> None:
    """That begins with all there is."""
    server = Server()
    server.assign(A)
    server.deliver(A, 0, 4)
    old = await server.member.next_batch()
    server.open()
    server.assign(A)
    old.ack()
    assert server.all_is_back
    assert server.acknowledged == []


async def test_what_is_wanted_later_counts_as_later_also_when_the_clock_was_set_back() -> None:
    """The server passes over older versions of a subscription than it knows."""
    times = iter([5_000, 4_000, 4_000, 6_000])
    connection: Any = SimpleNamespace(clock=SimpleNamespace(now_ms=lambda: next(times)), room="")
    consumer = Consumer(connection, "g", {}, ConsumerSettings(client_id="c"))
    versions = []
    for _ in range(4):
        consumer.subscribe("t")
        versions += [one.version for one in consumer._member._opening.subscriptions]
    assert versions == [5_000, 5_001, 5_002, 6_000]
