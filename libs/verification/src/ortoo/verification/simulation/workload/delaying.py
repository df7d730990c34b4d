"""Delayed messages: none is visible before its time, and a recalled one never comes."""

from ortoo.client import Client, Conflict, OrtooError, Producer
from ortoo.verification.simulation.oracle.sent import TrackedMessage
from ortoo.verification.simulation.oracle.stored import compare_stored
from ortoo.verification.simulation.workload.application import Application
from ortoo.verification.simulation.workload.pushing import push_member
from ortoo.verification.simulation.workload.scenario import Scenario

DELAY_MS = (200.0, 12_000.0)
RECALLED = 0.2
"""The share of messages to recall."""


class DelayScenario(Scenario):
    """A producer of delayed messages that recalls some, and a group that receives the others."""

    name = "delaying"
    group = "push-delayed"

    def build(self) -> None:
        """One producer, two group members."""

        async def produce(application: Application, client: Client) -> None:
            async with client.producer(self.name) as producer:
                while True:
                    await self._delay(application, client, producer)
                    await application.pause_for(self.rate_per_s)

        async def consume(application: Application, client: Client) -> None:
            await push_member(application, client, self.group, self.name)

        self.groups = {self.group: self.name}
        self.senders = [self.application("p0", produce)]
        self.consumers = [self.application(f"c{n}", consume) for n in range(2)]

    async def prepare(self, client: Client) -> None:
        """A topic for delayed messages."""
        await client.admin.create_topic(self.name, queue_count=2, message_type="delay")

    async def check(self, client: Client) -> None:
        """Compare the stored messages."""
        await compare_stored(client, self.oracle, self.name)

    async def _delay(self, application: Application, client: Client, producer: Producer) -> None:
        chance = application.chance
        due_at_ms = application.clock.now_ms() + int(chance.uniform(*DELAY_MS))
        sent, message = application.next_message(self.name, deliver_at_ms=due_at_ms)
        sent.due_at_ms = due_at_ms
        try:
            receipt = await producer.send(message)
        except OrtooError as error:
            self.oracle.sent.failed(sent, self.oracle.now_s(), error)
            return
        self.oracle.sent.stored(sent, self.oracle.now_s(), None, -1)
        if receipt.recall_handle and chance.uniform(0.0, 1.0) < RECALLED:
            await application.clock.sleep(chance.uniform(0.0, DELAY_MS[1] / 1000))
            await self._recall(client, sent, receipt.recall_handle)

    async def _recall(self, client: Client, sent: TrackedMessage, handle: str) -> None:
        sent.optional = True  # its delivery is optional until the recall has an outcome
        try:
            await client.recall(handle)
        except Conflict:
            sent.optional = False
        except OrtooError:
            return  # also for NotFound: it was delivered, or the answer to an earlier recall was lost
        else:
            sent.hidden = True
            if deliveries := self.oracle.received.of(self.group, sent.key):
                where = deliveries[0]
                self.oracle.violations.add("G6", f"{sent.key} was recalled, and came at {where.at_s:.3f} s before that")
