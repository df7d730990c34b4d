"""Dedup ids: a message that several clients send repeatedly is stored once."""

from ortoo.client import Client, Message, OrtooError, Queue
from ortoo.verification.simulation.oracle.stored import compare_stored
from ortoo.verification.simulation.workload.application import Application
from ortoo.verification.simulation.workload.pushing import push_member
from ortoo.verification.simulation.workload.scenario import Scenario

SENDERS = 2
IDS_AHEAD = 3
"""The number of current ids from which senders choose."""


class DeduplicationScenario(Scenario):
    """Two clients that send the same ids, and a group that receives each once."""

    name = "deduplicating"
    group = "push-once"

    def build(self) -> None:
        """Two senders, one group member."""
        self._number = 0
        self._places: dict[str, tuple[Queue, int]] = {}

        async def produce(application: Application, client: Client) -> None:
            while True:
                await self._send(application, client)
                await application.pause_for(self.rate_per_s / SENDERS)

        async def consume(application: Application, client: Client) -> None:
            await push_member(application, client, self.group, self.name)

        self.groups = {self.group: self.name}
        self.senders = [self.application(f"p{n}", produce) for n in range(SENDERS)]
        self.consumers = [self.application("c0", consume)]

    async def check(self, client: Client) -> None:
        """Compare the stored messages."""
        await compare_stored(client, self.oracle, self.name)

    async def _send(self, application: Application, client: Client) -> None:
        self._number += application.chance.below(2)
        key = f"{self.name}/{max(0, self._number - application.chance.below(IDS_AHEAD))}"
        now_s = self.oracle.now_s()
        sent = self.oracle.sent.of(key) or self.oracle.sent.begin(self.name, key, now_s)
        async with client.producer(self.name) as producer:
            try:
                receipt = await producer.send_once(Message(sent.body), key)
            except OrtooError as error:
                if error.retriable:
                    return
                raise
        place = self._places.setdefault(key, (receipt.queue, receipt.offset))
        if place != (receipt.queue, receipt.offset):
            self.oracle.violations.add(
                "G4", f"{key} was reported in {place[0]} at {place[1]} and in {receipt.queue} at {receipt.offset}"
            )
        self.oracle.sent.stored(sent, self.oracle.now_s(), receipt.queue, receipt.offset)
