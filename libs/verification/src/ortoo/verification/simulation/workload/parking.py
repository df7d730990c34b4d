"""Dead letters: a message that fails too often is parked, once, with the reason."""

from collections import Counter

from ortoo.client import Client, NotFound, OrtooError, PoppedMessage, PopSettings
from ortoo.verification.simulation.oracle.sent import SendOutcome, TrackedMessage, key_of, keys
from ortoo.verification.simulation.oracle.stored import compare_stored
from ortoo.verification.simulation.workload.application import Application
from ortoo.verification.simulation.workload.popping import received
from ortoo.verification.simulation.workload.scenario import Scenario

ATTEMPTS_MAX = 3
GIVEN_BACK_MAX = 2 * ATTEMPTS_MAX
"""More confirmed nacks than this mean that they are not counted."""
POISONED = 0.3
INVISIBLE_MS = 5_000.0
LOOK_S = 3.0


class ParkingScenario(Scenario):
    """A producer, and workers that always fail some messages."""

    name = "parking"
    group = "pop-and-park"

    def build(self) -> None:
        """One producer, two workers."""
        self._poisoned: dict[str, None] = {}
        self._parked: Counter[str] = Counter()
        self._given_back: Counter[str] = Counter()

        async def produce(application: Application, client: Client) -> None:
            async with client.producer(self.name) as producer:
                while True:
                    sent = await application.send(producer, self.name)
                    if application.chance.uniform(0.0, 1.0) < POISONED:
                        self._poisoned[sent.key] = None
                    await application.pause_for(self.rate_per_s)

        async def work(application: Application, client: Client) -> None:
            settings = PopSettings(
                invisible_ms=INVISIBLE_MS, wait_ms=3_000.0, messages_max=4, attempts_max=ATTEMPTS_MAX
            )
            async with client.pop_consumer(self.group, self.name, "*", settings) as consumer:
                while True:
                    popped = await consumer.pop()
                    for message, sent in received(application, popped, self.group, INVISIBLE_MS):
                        try:
                            await self._handle(message, sent)
                        except OrtooError as error:
                            application.note(f"not settled {type(error).__name__}")

        async def look(application: Application, client: Client) -> None:
            while True:
                await self._look(client)
                await application.clock.sleep(LOOK_S)

        self.senders = [self.application("p0", produce)]
        self.consumers = [self.application(f"w{n}", work) for n in range(2)]
        self.consumers.append(self.application("looks", look))

    def unsettled(self) -> str:
        """Messages that are neither acknowledged nor parked."""
        left = [
            one
            for one in self.oracle.sent.in_topic(self.name)
            if one.outcome is SendOutcome.STORED
            and not self.oracle.leases.is_ack_attempted(self.group, one.key)
            and not self._parked[one.key]
        ]
        return f"{self.group} has neither finished nor parked {keys(left)}" if left else ""

    async def check(self, client: Client) -> None:
        """Compare the stored messages; each dead letter exists once."""
        await compare_stored(client, self.oracle, self.name)
        await self._look(client)
        if twice := [key for key, count in sorted(self._parked.items()) if count > 1]:
            self.oracle.violations.add("G9", f"parked more than once: {twice[:5]}")

    async def _handle(self, message: PoppedMessage, sent: TrackedMessage) -> None:
        leases = self.oracle.leases
        if message.attempt > ATTEMPTS_MAX:
            self.oracle.violations.add("G9", f"{sent.key} came with attempt {message.attempt}")
        if sent.key in self._poisoned:
            if self._given_back[sent.key] >= GIVEN_BACK_MAX:
                self.oracle.violations.add("G9", f"{sent.key} was nacked {GIVEN_BACK_MAX} times and came again")
            leases.begin_release(self.group, sent)
            await message.nack(100.0, error="poisoned")
            self._given_back[sent.key] += 1
            return
        leases.begin_ack(self.group, sent)
        await message.ack()
        leases.acked(self.group, sent)

    async def _look(self, client: Client) -> None:
        try:
            found = [letter async for letter in client.admin.list_dead_letters(self.group)]
        except NotFound:
            return  # nothing was parked yet
        self._parked = Counter(key_of(letter.message.body) or "?" for letter in found)
