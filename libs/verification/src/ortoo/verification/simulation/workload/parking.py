"""Dead letters: a message that fails too often is parked, once, with the reason."""

from collections import Counter

from ortoo.client import Client, NotFound, OrtooError, PoppedMessage, PopSettings, Queue
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
        self._parked: dict[str, set[tuple[Queue, int]]] = {}
        """The places of the dead letters of each message, with those that were deleted since."""
        self._begins: dict[Queue, int] = {}
        """The begins of the queues of dead letters, where enodes delete messages."""
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
            and one.key not in self._parked
        ]
        # No group consumes dead letters, so enodes may delete them before they are listed.
        return f"{self.group} has neither finished nor parked {keys(left)}" if len(left) > self._unseen() else ""

    async def check(self, client: Client) -> None:
        """Compare the stored messages; each dead letter exists once."""
        await compare_stored(client, self.oracle, self.name)
        await self.check_lag(client, self.group)
        found = await self._look(client)
        lost = {place for place in self._seen() - found if self.oracle.may_have_lost_data(place[0].enode)}
        if twice := [key for key, places in sorted(self._parked.items()) if len(places - lost) > 1]:
            self.oracle.violations.add("G9", f"parked more than once: {twice[:5]}")
        if gone := sorted(place for place in self._seen() - found - lost if not self._is_deleted(*place)):
            self.oracle.violations.add("G1", f"dead letters of {self.group} are not there any more: {gone[:5]}")

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

    async def _look(self, client: Client) -> set[tuple[Queue, int]]:
        """The places of all dead letters."""
        found = set[tuple[Queue, int]]()
        try:
            async for letter in client.admin.list_dead_letters(self.group):
                place = (letter.queue, letter.offset)
                self._parked.setdefault(key_of(letter.message.body) or "?", set()).add(place)
                found.add(place)
            if self.oracle.has_retention:
                described = await client.admin.describe_topic(f"%DLQ%{self.group}")
                self._begins.update((item.queue, item.begin_offset) for item in described.queues)
        except NotFound:
            pass  # nothing was parked yet
        return found

    def _unseen(self) -> int:
        """The number of dead letters that were deleted before they were listed."""
        return sum(self._begins.values()) - sum(self._is_deleted(*place) for place in self._seen())

    def _seen(self) -> set[tuple[Queue, int]]:
        return set[tuple[Queue, int]]().union(*self._parked.values())

    def _is_deleted(self, queue: Queue, offset: int) -> bool:
        return offset < self._begins.get(queue, 0)
