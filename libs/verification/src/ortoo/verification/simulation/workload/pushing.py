"""Push consumers: group members that get batches and acknowledge them."""

from ortoo.client import Client, Consumer, ConsumerSettings, Queue
from ortoo.client.core.wire import queue_of
from ortoo.common.grpc.bulk_field import BulkMessage
from ortoo.verification.simulation.oracle.stored import compare_stored
from ortoo.verification.simulation.workload.application import Application, Work
from ortoo.verification.simulation.workload.scenario import Scenario

HANDLED_S = 0.02
ROW_BYTES = 4
"""Bytes of a row number in a delivery that leaves rows out."""
CREDITS = (12, 131_072)
"""The messages that a group member takes before it has finished some."""


async def push_member(application: Application, client: Client, group: str, topic: str) -> None:
    """Consume a topic as a group member, without end."""
    credit = CREDITS[application.chance.below(len(CREDITS))]
    settings = ConsumerSettings(
        from_beginning=True, client_id=application.incarnation, unacknowledged_messages_max=credit
    )
    async with client.consumer(group, {topic: "*"}, settings) as consumer:
        watched = _CommittedOffsetCheck(application, consumer, group)
        application.queues = lambda: consumer.queues
        async for message in consumer:
            watched.check(message.queue, message.offset)
            application.oracle.received.delivered(
                group, application.incarnation, message.body, message.queue, message.offset, message.attempt
            )
            await application.clock.sleep(application.chance.uniform(0, HANDLED_S))
            message.ack()


class _CommittedOffsetCheck:
    """Compares the offsets of a consumer's sessions with the model."""

    def __init__(self, application: Application, consumer: Consumer, group: str) -> None:
        self._oracle = application.oracle
        self._group = group
        self._opened_at_s = self._oracle.now_s()
        self._moves = self._oracle.offsets.moves(group)
        self._unfinished = 0
        member = consumer._member
        forget, hear, begin, free = (
            member._on_stream_end,
            member._on_response,
            member._send_opening,
            member._return_credit,
        )

        def forgotten() -> None:
            forget()
            self._opened_at_s = self._oracle.now_s()
            self._moves = self._oracle.offsets.moves(group)

        def heard(bulky: BulkMessage) -> bool:
            said, _ = bulky
            if said.delivery.HasField("batch"):
                if self._unfinished >= member._messages_max:
                    member_says = f"{application.incarnation} took {member._messages_max} messages and was sent more"
                    self._oracle.violations.add("G13", f"{member_says}: {self._unfinished} are not finished")
                self._unfinished += len(said.delivery.rows) // ROW_BYTES or said.delivery.batch.count
            if self._moves == self._oracle.offsets.moves(group):
                for one in said.committed.offsets:
                    self._oracle.offsets.durable(group, queue_of(one.queue), one.offset)
            return hear(bulky)

        def began() -> None:
            self._unfinished = 0
            begin()

        def freed(messages: int, size_bytes: int) -> None:
            self._unfinished -= messages
            free(messages, size_bytes)

        # The client has no public hook for these events; the model needs them.
        member._on_stream_end = forgotten  # type: ignore[method-assign]
        member._send_opening = began  # type: ignore[method-assign]
        member._return_credit = freed  # type: ignore[method-assign]
        member._on_response = heard  # type: ignore[method-assign]

    def check(self, queue: Queue, offset: int) -> None:
        """A message with this position arrived."""
        self._oracle.offsets.began(self._group, queue, offset, self._opened_at_s)


class PushScenario(Scenario):
    """Producers, and two groups with push consumers."""

    name = "pushing"

    def build(self) -> None:
        """Two producers, three members of one group and one of another."""

        async def produce(application: Application, client: Client) -> None:
            async with client.producer(self.name) as producer:
                while True:
                    await application.send_some(producer, self.name)
                    await application.pause_for(self.rate_per_s / 4)

        def member_of(group: str) -> Work:
            async def consume(application: Application, client: Client) -> None:
                await push_member(application, client, group, self.name)

            return consume

        self.groups = {"push-many": self.name, "push-one": self.name}
        self.senders = [self.application(f"p{n}", produce) for n in range(2)]
        self.consumers = [
            self.application(name, member_of(group))
            for name, group in (("c0", "push-many"), ("c1", "push-many"), ("d0", "push-one"))
        ]

    async def check(self, client: Client) -> None:
        """Compare the stored messages and the committed offsets."""
        await compare_stored(client, self.oracle, self.name)
        await self.check_offsets(client)
        await self.check_balance(client, self.consumers[:2])
        await self.check_balance(client, self.consumers[2:])
