"""Pop consumers: workers that receive messages one by one, each with a lease."""

from collections.abc import Sequence

from ortoo.client import Client, OrtooError, PoppedMessage, PopSettings
from ortoo.verification.simulation.oracle.sent import TrackedMessage
from ortoo.verification.simulation.oracle.stored import compare_stored
from ortoo.verification.simulation.workload.application import Application
from ortoo.verification.simulation.workload.scenario import Scenario

INVISIBLE_MS = 10_000.0
WAIT_MS = 3_000.0


def received(
    application: Application, messages: Sequence[PoppedMessage], group: str, invisible_ms: float = INVISIBLE_MS
) -> list[tuple[PoppedMessage, TrackedMessage]]:
    """Record these messages as leased by the application, before it handles each."""
    oracle, taken = application.oracle, []
    for message in messages:
        delivery = oracle.received.delivered(
            group, application.incarnation, message.body, message.queue, message.offset, message.attempt
        )
        if delivery is not None:
            oracle.leases.delivered(delivery, invisible_ms)
            taken.append((message, delivery.sent))
    return taken


async def settle(application: Application, message: PoppedMessage, sent: TrackedMessage, group: str) -> None:
    """Act like a handler: most messages are acknowledged at once, some are nacked, some take long."""
    leases = application.oracle.leases
    drawn = application.chance.uniform(0.0, 1.0)
    await application.clock.sleep(application.chance.uniform(0.0, 0.05 if drawn > 0.05 else 1.5 * INVISIBLE_MS / 1000))
    if drawn > 0.9:
        leases.begin_release(group, sent)
        await message.nack(application.chance.uniform(0.0, 2_000.0))
        return
    leases.begin_ack(group, sent)
    await message.ack()
    leases.acked(group, sent)


class PopScenario(Scenario):
    """Two producers, and workers that share their messages."""

    name = "popping"
    group = "pop"

    def build(self) -> None:
        """Two producers, three workers."""

        async def produce(application: Application, client: Client) -> None:
            async with client.producer(self.name) as producer:
                while True:
                    await application.send_some(producer, self.name)
                    await application.pause_for(self.rate_per_s / 4)

        async def work(application: Application, client: Client) -> None:
            settings = PopSettings(invisible_ms=INVISIBLE_MS, wait_ms=WAIT_MS, messages_max=8)
            async with client.pop_consumer(self.group, self.name, "*", settings) as consumer:
                while True:
                    for message, sent in received(application, await consumer.pop(), self.group):
                        try:
                            await settle(application, message, sent, self.group)
                        except OrtooError as error:
                            application.note(f"not settled {type(error).__name__}")

        self.groups = {self.group: self.name}
        self.senders = [self.application(f"p{n}", produce) for n in range(2)]
        self.consumers = [self.application(f"w{n}", work) for n in range(3)]

    def unsettled(self) -> str:
        """Also messages that were delivered and not acknowledged."""
        return super().unsettled() or self.oracle.leases.unsettled(self.group)

    async def check(self, client: Client) -> None:
        """Compare the stored messages; the group has no lag."""
        await compare_stored(client, self.oracle, self.name)
        await self.check_lag(client, self.group)
