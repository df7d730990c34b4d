"""Pull consumers: group members that fetch from queues they own by locks."""

from ortoo.client import Client, PullSettings
from ortoo.verification.simulation.oracle.stored import compare_stored
from ortoo.verification.simulation.workload.application import Application
from ortoo.verification.simulation.workload.scenario import Scenario

COMMIT_EVERY = 5
"""A group member commits after this number of messages."""
HANDLED_S = 0.02


class PullScenario(Scenario):
    """A producer, and a group of three that pulls."""

    name = "pulling"

    def build(self) -> None:
        """One producer, three group members."""
        group = "pull"
        self.groups = {group: self.name}

        async def produce(application: Application, client: Client) -> None:
            async with client.producer(self.name) as producer:
                while True:
                    await application.send_some(producer, self.name)
                    await application.pause_for(self.rate_per_s / 2)

        async def consume(application: Application, client: Client) -> None:
            settings = PullSettings(from_beginning=True, commit_first_ms=2000, commit_interval_ms=2000)
            async with client.pull_consumer(group, {self.name: "*"}, settings) as consumer:
                application.queues = lambda: consumer.queues
                moves, handled = self.oracle.offsets.moves(group), 0
                async for message in consumer:
                    self.oracle.received.delivered(
                        group, application.incarnation, message.body, message.queue, message.offset, message.attempt
                    )
                    await application.clock.sleep(application.chance.uniform(0, HANDLED_S))
                    message.ack()
                    handled += 1
                    if handled % COMMIT_EVERY == 0:
                        await consumer.commit()
                        committed = await consumer.committed(message.queue)
                        if committed is not None and moves == self.oracle.offsets.moves(group):
                            self.oracle.offsets.durable(group, message.queue, committed)

        self.senders = [self.application("p0", produce)]
        self.consumers = [self.application(f"c{n}", consume) for n in range(3)]

    async def check(self, client: Client) -> None:
        """Compare the stored messages and the committed offsets."""
        await compare_stored(client, self.oracle, self.name)
        await self.check_offsets(client)
        await self.check_balance(client, self.consumers)
