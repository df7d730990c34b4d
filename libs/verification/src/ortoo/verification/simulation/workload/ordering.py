"""Message groups: the next message of a group comes when the previous one is acknowledged."""

from ortoo.client import Client, OrtooError, PoppedMessage, PopSettings
from ortoo.verification.simulation.oracle.sent import SendOutcome, TrackedMessage
from ortoo.verification.simulation.oracle.stored import compare_stored
from ortoo.verification.simulation.workload.application import Application
from ortoo.verification.simulation.workload.popping import INVISIBLE_MS, WAIT_MS, received, settle
from ortoo.verification.simulation.workload.scenario import Scenario

MESSAGE_GROUPS = 3


class OrderingScenario(Scenario):
    """A producer of a few message groups, and workers that pop in order."""

    name = "ordering"
    group = "pop-in-order"

    def build(self) -> None:
        """One producer, three workers."""

        async def produce(application: Application, client: Client) -> None:
            async with client.producer(self.name) as producer:
                while True:
                    chosen = f"{application.name}-{application.chance.below(MESSAGE_GROUPS)}"
                    sent = await application.send(producer, self.name, message_group=chosen)
                    sent.message_group = chosen
                    await application.pause_for(self.rate_per_s)

        async def work(application: Application, client: Client) -> None:
            settings = PopSettings(invisible_ms=INVISIBLE_MS, wait_ms=WAIT_MS, messages_max=4, in_order=True)
            async with client.pop_consumer(self.group, self.name, "*", settings) as consumer:
                while True:
                    popped = await consumer.pop()
                    for message in popped:
                        self._check_order(message)
                    for message, sent in received(application, popped, self.group):
                        try:
                            await settle(application, message, sent, self.group)
                        except OrtooError as error:
                            application.note(f"not settled {type(error).__name__}")

        self.passed_over: list[tuple[TrackedMessage, str]] = []
        """Messages of an enode with damage that others overtook, and the finding to report unless they are lost."""
        self.groups = {self.group: self.name}
        self.senders = [self.application("p0", produce)]
        self.consumers = [self.application(f"w{n}", work) for n in range(3)]

    def unsettled(self) -> str:
        """Also messages that were delivered and not acknowledged."""
        return super().unsettled() or self.oracle.leases.unsettled(self.group)

    async def check(self, client: Client) -> None:
        """Compare the stored messages. Only lost ones may have been overtaken, and the group has no lag."""
        stored = await compare_stored(client, self.oracle, self.name)
        for before, words in self.passed_over:
            if not stored.is_lost(before.queue, before.offset):
                self.oracle.violations.add("G5", words)
        await self.check_lag(client, self.group)

    def _check_order(self, message: PoppedMessage) -> None:
        for before in self.oracle.sent.in_topic(self.name):
            if (
                before.outcome is SendOutcome.STORED
                and before.message_group == message.message_group
                and before.queue == message.queue
                and before.offset < message.offset
                and not self.oracle.leases.is_ack_attempted(self.group, before.key)
            ):
                words = f"{message.queue} at {message.offset} came before {before.key} was acknowledged"
                if message.queue.enode not in self.oracle.damaged:
                    self.oracle.violations.add("G5", words)
                    return
                self.passed_over.append((before, words))
