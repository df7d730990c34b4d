"""Machines of applications: they connect, do their work, and continue after any answer of the cluster."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from ortoo.client import Client, Message, OrtooError, Producer, Queue, connect
from ortoo.common.process.randomness import Randomness
from ortoo.testing.simulation.cluster.machine import Machine
from ortoo.verification.simulation.oracle.oracle import Oracle
from ortoo.verification.simulation.oracle.sent import TrackedMessage

RESTART_PAUSE_S = 0.5
FILLER_SELDOM = 0.03
FILLER_BYTES = 40_000
BURSTS = 0.3
BURST_MAX = 8

Work = Callable[["Application", Client], Awaitable[None]]


class Application(Machine):
    """A program that uses the client library."""

    def __init__(self, oracle: Oracle, name: str, addresses: Sequence[str], work: Work) -> None:
        """Repeat `work`: it starts again when it returns or the cluster refuses it."""
        super().__init__(oracle.world, name)
        self.oracle = oracle
        self.chance: Randomness = oracle.world.random_streams.stream(f"application {name}")
        self.queues: Callable[[], Sequence[Queue]] = tuple
        """The queues that its consumer owns now, if it is a group member."""
        self._work = work
        # Each one tries the snodes in its own order, as behind a load balancer.
        start = self.chance.below(len(addresses))
        self.addresses = [*addresses[start:], *addresses[:start]]
        self._sent = 0

    def kill(self) -> None:
        """End the process."""
        self.oracle.leases.member_ended(self.incarnation)
        super().kill()

    async def stop(self) -> None:
        """Ask the program to end, and wait until it has."""
        self.oracle.leases.member_ended(self.incarnation)
        await super().stop()

    @property
    def incarnation(self) -> str:
        """The name of the running process, which is never used again."""
        return f"{self.name}#{self.incarnations}"

    async def work(self) -> None:
        """Connect, and work until the machine is asked to stop."""
        self.ready.set()
        working = asyncio.ensure_future(self._run_repeatedly())  # noqa: TID251  # ends with this method
        stopping = asyncio.ensure_future(self.stopping())  # noqa: TID251
        await asyncio.wait({working, stopping}, return_when=asyncio.FIRST_COMPLETED)
        for task in (working, stopping):
            task.cancel()
        await asyncio.wait({working, stopping})
        if not working.cancelled():
            working.result()

    def next_message(self, topic: str, **named: object) -> tuple[TrackedMessage, Message]:
        """The next message of this application, and its entry in the model."""
        self._sent += 1
        filler = self.chance.below(FILLER_BYTES) if self.chance.uniform(0, 1) < FILLER_SELDOM else 16
        sent = self.oracle.sent.begin(
            topic, f"{topic}/{self.incarnation}/{self._sent}", self.oracle.now_s(), filler=filler
        )
        return sent, Message(sent.body, keys=(sent.key,)).replace(**named) if named else Message(sent.body)

    async def send(self, producer: Producer, topic: str, **named: object) -> TrackedMessage:
        """Send one message, and record its outcome."""
        sent, message = self.next_message(topic, **named)
        try:
            receipt = await producer.send(message)
        except OrtooError as error:
            self.oracle.sent.failed(sent, self.oracle.now_s(), error)
        else:
            self.oracle.sent.stored(sent, self.oracle.now_s(), receipt.queue, receipt.offset)
        return sent

    async def send_some(self, producer: Producer, topic: str) -> None:
        """Send one message, or several at once."""
        count = 1 + (self.chance.below(BURST_MAX) if self.chance.uniform(0.0, 1.0) < BURSTS else 0)
        await asyncio.gather(*(self.send(producer, topic) for _ in range(count)))

    async def pause_for(self, rate_per_s: float) -> None:
        """Wait until the next action, at `rate_per_s` actions a second on average."""
        await self.clock.sleep(self.chance.uniform(0.2, 1.8) / rate_per_s)

    async def _run_repeatedly(self) -> None:
        while True:
            try:
                async with connect(
                    self.addresses, client_id=self.incarnation, clock=self.clock, randomness=self.randomness()
                ) as client:
                    await self._work(self, client)
            except* OrtooError as group:
                self.oracle.leases.member_ended(self.incarnation)
                self.note(f"refused {[str(error)[:80] for error in group.exceptions]}")
            await self.clock.sleep(RESTART_PAUSE_S)
