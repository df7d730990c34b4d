"""A store for pops, on a disk in memory, with a clock that moves when all tasks wait."""

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from ortoo.common.groups.pop import AwaitRequest, Finish, LeasePart, Popped, PopRequest, PopRules, Redeliver
from ortoo.common.process.background import Background
from ortoo.common.records.batch import encode, open_batch
from ortoo.common.records.message import Message
from ortoo.enode.log.results import TopicCopy
from ortoo.enode.pops.leasing import PopLeasing
from ortoo.enode.store.store import Store
from ortoo.testing.disks.disk_image import CrashOutcome
from ortoo.testing.disks.memory_disk import USUAL_OUTCOME
from ortoo.verification.time.virtual_clock import VirtualClock
from tests.contract.one_store import QUEUES, TOPIC, OneStore

DEAD_LETTERS = 6
GROUP = "billing"
INVISIBLE_MS = 10_000


@dataclass
class PopStore:
    """A store, its leases, and shortcuts for the operations of tests."""

    one: OneStore
    background: Background
    leasing: PopLeasing = field(init=False)
    rules: PopRules = field(default_factory=lambda: PopRules(attempts_max=3, dead_letter_topic_id=DEAD_LETTERS))

    @property
    def store(self) -> Store:
        """The currently open store."""
        return self.one.store

    async def open(self) -> None:
        """Open leasing over the store; the dead-letter topic exists."""
        await self.store.put_topics([TopicCopy(DEAD_LETTERS, "%DLQ%billing", 1, 1)])
        self.leasing = PopLeasing(self.store, self.one.clock, self.background)

    async def crash(self, seed: int = 1, fate: CrashOutcome = USUAL_OUTCOME) -> None:
        """Cut the power and start again."""
        await self.leasing.lines.close()
        await self.one.crash(seed, fate)
        await self.open()

    async def restart(self) -> None:
        """Stop and start again."""
        await self.leasing.lines.close()
        await self.one.restart()
        await self.open()

    async def send(self, *bodies: str, group: str | None = None, queue_id: int = 0) -> None:
        """Store messages in one batch."""
        messages = [Message(body.encode(), message_group=group) for body in bodies]
        await self.store.append(TOPIC, queue_id, encode(messages, now_ms=1))

    async def pop(
        self,
        count: int = 32,
        *,
        wait_ms: int = 0,
        invisible_ms: int = INVISIBLE_MS,
        attempt_id: str = "",
        **rules: Any,
    ) -> Popped:
        """Pop from all queues."""
        chosen = dataclasses.replace(self.rules, **rules)
        queues = tuple(range(QUEUES))
        wish = PopRequest(TOPIC, GROUP, queues, count, invisible_ms, 1 << 20, wait_ms, "me", attempt_id, chosen)
        return await self.leasing.pop(wish)

    def popping(self, count: int = 32, *, wait_ms: int = 60_000, **rules: Any) -> "asyncio.Task[Popped]":
        """A pop that waits in a task."""
        return self.background.spawn("pop", self.pop(count, wait_ms=wait_ms, **rules))

    def awaiting(self, *, wait_ms: int = 60_000, group: str = GROUP, **rules: Any) -> "asyncio.Future[bool]":
        """A wait for messages of all queues, in a task, as of one snode."""
        chosen = dataclasses.replace(self.rules, **rules)
        request = AwaitRequest(TOPIC, group, tuple(range(QUEUES)), chosen, wait_ms)
        return self.background.start_future("await", self.leasing.waits.wait(request))

    async def ack(self, popped: Popped) -> int:
        """Acknowledge all messages; returns the number of refused ones."""
        return len(await self.leasing.settle(TOPIC, GROUP, parts(popped), Finish()))

    async def nack(self, popped: Popped, delay_ms: int = 0, *, counts: bool = True, error: str = "") -> None:
        """Nack or release all messages."""
        how = Redeliver((delay_ms,), counts, "me", error, rules=self.rules)
        await self.leasing.settle(TOPIC, GROUP, parts(popped), how)

    async def dead_letters(self) -> list[Message]:
        """The messages in the dead-letter topic."""
        found: list[Message] = []
        at, end = 0, self.store.queue_range(DEAD_LETTERS, 0).end_offset
        while at < end:
            fetched = await self.store.fetch(DEAD_LETTERS, 0, at)
            found += [message for one in fetched.batches for message in open_batch(one.batch)]
            at = fetched.next_offset
        return found


def parts(popped: Popped) -> list[LeasePart]:
    """The parts of leases for popped messages."""
    return [LeasePart(one.queue_id, one.number, tuple((offset, 1) for offset in one.offsets)) for one in popped.batches]


def texts(popped: Popped) -> list[str]:
    """The bodies, in order."""
    return [body.decode() for one in popped.batches for body in open_batch(one.batch).bodies()]


def attempts(popped: Popped) -> Sequence[int]:
    """The attempts of each message, in order."""
    return [attempt for one in popped.batches for attempt in one.attempts]


@asynccontextmanager
async def pop_store(clock: VirtualClock) -> AsyncIterator[PopStore]:
    """An open store."""
    one = OneStore(clock=clock)
    await one.open()
    async with Background("test") as background:
        it = PopStore(one, background)
        await it.open()
        yield it
        await it.leasing.lines.close()
    await one.store.close()


def play(scenario: Callable[[PopStore], Awaitable[None]]) -> None:
    """Run a scenario with virtual time."""
    clock = VirtualClock()

    async def playing() -> None:
        async with pop_store(clock) as it:
            await scenario(it)

    clock.run(playing)
