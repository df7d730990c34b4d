"""Callers with short timeouts: every call of producers and consumers is cancelled at random points, repeatedly."""

import asyncio
from collections.abc import AsyncIterable, Awaitable, Callable

from ortoo.client import (
    Client,
    ConsumerClosed,
    ConsumerSettings,
    PopConsumer,
    PoppedMessage,
    PopSettings,
    PullSettings,
    ReceivedMessage,
    connect,
)
from ortoo.verification.simulation.oracle.sent import TrackedMessage
from ortoo.verification.simulation.oracle.stored import compare_stored
from ortoo.verification.simulation.workload.application import Application
from ortoo.verification.simulation.workload.popping import received
from ortoo.verification.simulation.workload.scenario import Scenario

FAULTLESS_INVISIBLE_MS = 3_600_000.0
"""Leases longer than any run: a message whose pop was cancelled must be released, or it never comes again."""
INVISIBLE_MS = 10_000.0
"""Where processes end, their messages come again when the lease expires."""
CANCELLATIONS_MAX = 40
"""The number of cancellations of a consumer; then it continues as others do, so that the run can come to rest."""
PATIENCE_MAX_S = 1.2
SHORT_PATIENCE_MAX_S = 0.03
SHORT = 0.6
"""The share of timeouts short enough to cancel the first of several awaits."""

Call = Callable[[], Awaitable[object]]


class CancellationScenario(Scenario):
    """Producers, and a group of each kind of consumer, under random timeouts."""

    name = "cancelling"

    def build(self) -> None:
        """Create a producer, three pop workers, two pull consumers and two push consumers."""
        self.groups = {"cancel-pop": self.name, "cancel-pull": self.name, "cancel-push": self.name}
        self._left = dict.fromkeys(("w0", "w1", "w2", "l0", "l1", "s0", "s1"), CANCELLATIONS_MAX)
        self.senders = [self.application("p0", self._produce)]
        self._pullers = [self.application(name, self._pull) for name in ("l0", "l1")]
        self._pushed = [self.application(name, self._pushed_to) for name in ("s0", "s1")]
        poppers = [self.application(name, self._pop) for name in ("w0", "w1", "w2")]
        self.consumers = [*poppers, *self._pullers, *self._pushed]

    async def check(self, client: Client) -> None:
        """Compare the stored messages; no group may have members that left, or a lag."""
        await compare_stored(client, self.oracle, self.name)
        await self.check_lag(client, "cancel-pop")
        await self.check_balance(client, self._pullers)
        await self.check_balance(client, self._pushed)

    # Callers.

    async def _produce(self, application: Application, client: Client) -> None:
        """Send with a timeout for some of the answers; sometimes leave the whole producer."""

        async def some() -> None:
            async with client.producer(self.name) as producer:
                while True:
                    await self._impatient(application, lambda: application.send(producer, self.name))
                    await application.pause_for(self.rate_per_s)

        while True:
            await self._impatient(application, some, longest_s=10 * PATIENCE_MAX_S)

    async def _pop(self, application: Application, client: Client) -> None:
        """Pop, ack and nack, each under a timeout; sometimes leave the whole consumer."""
        invisible_ms = FAULTLESS_INVISIBLE_MS if self.is_faultless else INVISIBLE_MS
        settings = PopSettings(invisible_ms=invisible_ms, renew_max_ms=0, wait_ms=1_000, messages_max=8)

        async def one(consumer: PopConsumer, held: list[tuple[PoppedMessage, TrackedMessage]]) -> None:
            if not held:
                held += received(application, await consumer.pop(), "cancel-pop", invisible_ms)
            while held:
                message, sent = held[0]  # a cancelled acknowledgement is repeated
                self.oracle.leases.begin_ack("cancel-pop", sent)
                await message.ack()
                self.oracle.leases.acked("cancel-pop", sent)
                del held[0]

        async def some() -> None:
            held: list[tuple[PoppedMessage, TrackedMessage]] = []
            async with client.pop_consumer("cancel-pop", self.name, "*", settings) as consumer:
                try:
                    while True:
                        await self._until_calm(application, lambda: one(consumer, held))
                finally:
                    self.oracle.leases.member_ended(
                        application.incarnation
                    )  # a consumer that leaves releases its messages

        await self._until_calm(application, some, longest_s=5 * PATIENCE_MAX_S)

    async def _pull(self, application: Application, client: Client) -> None:
        """Pull, and leave the consumer at a random point."""
        settings = PullSettings(from_beginning=True, commit_first_ms=500, commit_interval_ms=500)

        async def some() -> None:
            async with client.pull_consumer("cancel-pull", {self.name: "*"}, settings) as consumer:
                application.queues = lambda: consumer.queues
                await self._take(application, consumer, "cancel-pull")

        await self._until_calm(application, some)

    async def _pushed_to(self, application: Application, client: Client) -> None:
        """Receive pushes, and leave the consumer at a random point. Its client is its own, and left as well."""
        settings = ConsumerSettings(from_beginning=True, client_id=application.incarnation)

        async def some() -> None:
            async with (
                connect(
                    application.addresses,
                    client_id=application.incarnation,
                    clock=application.clock,
                    randomness=application.randomness(),
                ) as mine,
                mine.consumer("cancel-push", {self.name: "*"}, settings) as consumer,
            ):
                application.queues = lambda: consumer.queues
                await self._take(application, consumer, "cancel-push")

        await self._until_calm(application, some)

    async def _take(self, application: Application, messages: AsyncIterable[ReceivedMessage], group: str) -> None:
        async for message in messages:
            self.oracle.received.delivered(
                group, application.incarnation, message.body, message.queue, message.offset, message.attempt
            )
            message.ack()

    # Timeouts.

    async def _until_calm(self, application: Application, call: Call, *, longest_s: float = PATIENCE_MAX_S) -> None:
        """Make a call under a timeout. After `CANCELLATIONS_MAX` cancellations, wait without limit."""
        name = application.name.rpartition("-")[2]
        while self._left[name] > 0:
            if await self._impatient(application, call, longest_s=longest_s):
                self._left[name] -= 1
        await call()

    async def _impatient(self, application: Application, call: Call, *, longest_s: float = PATIENCE_MAX_S) -> bool:
        """Make one call under a random timeout; whether it was cancelled. None of it may continue after that."""
        short = application.chance.uniform(0.0, 1.0) < SHORT
        patience_s = application.chance.uniform(0.0, SHORT_PATIENCE_MAX_S if short else longest_s)
        try:
            async with asyncio.timeout(patience_s):
                await call()
        except TimeoutError:
            application.oracle.leases.member_ended(application.incarnation)
            return True
        except ConsumerClosed:
            self.oracle.violations.add("a cancelled call ends nothing else", f"{application.name} was left")
            raise
        return False
