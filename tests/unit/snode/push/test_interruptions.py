"""Messages that end their consumers: found among many, parked after their attempts, and nothing else is parked."""

import asyncio
import dataclasses
from dataclasses import dataclass, field

import pytest

from ortoo.common.groups.failure_rule import FailureRule
from ortoo.common.process.clock import Clock
from ortoo.snode.cluster.routes import Queue
from ortoo.snode.enodes.link import Interruption
from ortoo.snode.membership.group_members import CloseReason
from ortoo.snode.push.outbox import Delivery, SessionClosed
from ortoo.snode.push.redelivery import STALL_S
from ortoo.snode.push.session import PushSession
from ortoo.verification.time.virtual_time import in_virtual_time
from tests.unit.snode.push.push_bench import QUEUES, Bench, bench, event

ATTEMPTS = 3
COUNT = 50
HANDLER_S = 0.01


@dataclass
class Consumers:
    """Consumers of one group, one after the other, each of which ends with a deadly message."""

    it: Bench
    deadly: tuple[Queue, int]
    acknowledges_each: bool = True
    """Whether each message is acknowledged, and not only whole deliveries."""
    handled: set[tuple[Queue, int]] = field(default_factory=set)
    parked: list[tuple[Queue, int, int]] = field(default_factory=list)
    ended: int = 0

    def __post_init__(self) -> None:
        """Record what is parked instead of copying it."""
        self.it.sessions.context = dataclasses.replace(self.it.sessions.context, park=self._park)

    async def _park(self, group: str, queue: Queue, interruption: Interruption) -> bool:
        if not FailureRule(ATTEMPTS).is_last(interruption.attempts):
            return False
        self.parked.append((queue, interruption.offset, interruption.attempts))
        return True

    async def run(self, sessions_max: int, clock: Clock) -> None:
        """Consume in new sessions until one of them has nothing to do."""
        for number in range(sessions_max):
            session = await self.it.open(f"c{number}", messages=10_000)
            try:
                async with asyncio.timeout(5.0):
                    while await self._handle(session, await event(session, Delivery), clock):
                        pass
            except TimeoutError:
                return
            self.ended += 1
            await self.it.sessions.close(session, CloseReason.CLIENT_LEFT, "the connection was closed")

    async def _handle(self, session: PushSession, delivery: Delivery, clock: Clock) -> bool:
        rows = memoryview(delivery.rows).cast("i").tolist() or range(delivery.messages)
        for row in rows:
            place = (delivery.queue, delivery.first_offset + row)
            await clock.sleep(HANDLER_S)
            if place == self.deadly:
                return False
            self.handled.add(place)
            if self.acknowledges_each:
                session.commit(place[0], place[1] + 1, delivery.generation)
        session.commit(delivery.queue, delivery.next_offset, delivery.generation)
        return True


@pytest.mark.parametrize("acknowledges_each", [True, False])
@in_virtual_time
async def test_a_deadly_message_among_many_is_parked_and_no_other(acknowledges_each: bool) -> None:
    """Four queues with 50 messages each, in small and in large batches; 12 consumers end at most."""
    for batch_size in (1, COUNT):
        for deadly in ((QUEUES[0], 0), (QUEUES[2], 20), (QUEUES[3], COUNT - 1)):
            async with bench() as it:
                for queue in QUEUES:
                    for _ in range(COUNT // batch_size):
                        await it.store(queue.queue_id, *[b"x"] * batch_size)
                consumers = Consumers(it, deadly, acknowledges_each)
                await consumers.run(20, it.clock)
                assert consumers.parked == [(*deadly, ATTEMPTS)]
                everything = {(queue, offset) for queue in QUEUES for offset in range(COUNT)}
                assert consumers.handled == everything - {deadly}
                assert ATTEMPTS <= consumers.ended <= 12
                assert {it.enode.offsets["g", queue.queue_id] for queue in QUEUES} == {COUNT}


@in_virtual_time
async def test_sessions_that_end_otherwise_count_no_attempt() -> None:
    """A client that leaves, a stop of the snode, an eviction, a replaced session, another assignment."""
    for reason in CloseReason:
        async with bench() as it:
            await it.store(0, b"a")
            session = await it.open("c")
            await event(session, Delivery)
            session.has_left = reason is CloseReason.CLIENT_LEFT
            await it.sessions.close(session, reason, "the end")
            await event(session, SessionClosed)
            found = it.enode.interruptions.of((77, "g", 0), 0)
            assert (found is not None and found.attempts == 1) is (reason is CloseReason.EXPIRED)
    async with bench() as it:
        await it.store(3, b"a")
        first = await it.open("a")
        await event(first, Delivery)
        await it.open("b")
        await it.rest(1.0)
        assert QUEUES[3] not in first.feeders
        assert it.enode.interruptions.of((77, "g", 3), 0) is None


@in_virtual_time
async def test_an_unsent_delivery_counts_no_attempt() -> None:
    """The client never had it."""
    async with bench() as it:
        await it.store(0, b"a")
        session = await it.open("c")
        await it.rest(1.0)
        assert session.outbox.has_deliveries
        await it.sessions.close(session, CloseReason.CLIENT_LEFT, "the connection was closed")
        found = it.enode.interruptions.of((77, "g", 0), 0)
        assert found is not None
        assert found.attempts == 0


@in_virtual_time
async def test_a_client_that_acknowledges_many_messages_together_waits_once() -> None:
    """It gets the rest after a while, because its messages are not found in this way."""
    async with bench() as it:
        await it.store(0, *[b"x"] * COUNT)
        for number in range(2):
            session = await it.open(f"c{number}")
            await event(session, Delivery)
            await it.sessions.close(session, CloseReason.CLIENT_LEFT, "the connection was closed")
        session = await it.open("last")
        assert (await event(session, Delivery)).messages == COUNT // 16
        rest = it.parts.background.spawn("rest", event(session, Delivery))
        await it.rest(STALL_S + 1.0)
        assert not rest.done()
        await it.sessions.sweep()
        assert (await rest).messages == COUNT - COUNT // 16
