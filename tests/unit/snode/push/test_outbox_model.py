"""The events for a client of a push session, against a model of lists."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from ortoo.common.records.batch import encode
from ortoo.common.records.message import Message
from ortoo.snode.cluster.routes import Queue
from ortoo.snode.membership.group_members import CloseReason
from ortoo.snode.push.outbox import (
    DELIVERY_BYTES,
    Assignment,
    Delivery,
    DurableOffsets,
    PushOutbox,
    SessionClosed,
    SessionOpened,
)
from ortoo.verification.time.virtual_clock import VirtualClock
from ortoo.verification.time.virtual_time import in_virtual_time

BYTES_MAX = 200
BATCH = encode([Message(b"x" * 60)], now_ms=1)
QUEUES = [Queue("t", "e", number) for number in range(3)]
CLOSED = SessionClosed(CloseReason.CLIENT_LEFT, "too slow")


@dataclass
class Memory:
    """Counted memory."""

    held: int = 0
    moved_count: int = 0

    def draw_unchecked(self, size_bytes: int) -> None:
        """More of it."""
        self.held += size_bytes

    def release(self, size_bytes: int) -> None:
        """Less of it."""
        self.held -= size_bytes

    def on_progress(self) -> None:
        """The client took something."""
        self.moved_count += 1


@dataclass
class Model:
    """The outbox as lists, in the order of sending."""

    opened: list[SessionOpened] = field(default_factory=list)
    acknowledged: dict[Queue, tuple[int, int]] = field(default_factory=dict)
    closed: list[SessionClosed] = field(default_factory=list)
    assigned: list[Assignment] = field(default_factory=list)
    """The assignments not yet sent to the client."""
    told: set[Queue] = field(default_factory=set)
    """The queues of the last sent assignment."""
    deliveries: list[Delivery] = field(default_factory=list)

    def next(self) -> Any:
        """The next event; None if there is none."""
        if self.opened:
            return self.opened.pop()
        if self.acknowledged:
            pairs, self.acknowledged = self.acknowledged, {}
            return DurableOffsets([(queue, *pair) for queue, pair in pairs.items()])
        if self.closed:
            return self.closed[0]
        if self.assigned:
            return self.next_assigned()
        return self.deliveries.pop(0) if self.deliveries else None

    def next_assigned(self) -> Assignment:
        """The newest; before it one without queues that were revoked and returned, as of before they returned."""
        generation, stayed = 0, self.told
        for earlier, one in pairwise([Assignment(0, ()), *self.assigned]):
            stayed = stayed.intersection(one.queues)
            has_returned = self.told.intersection(one.queues) != stayed
            generation = (generation or earlier.generation) if has_returned else 0
        if not generation:
            self.assigned, self.told = [], set(one.queues)
            return one
        self.assigned, self.told = [one], stayed
        return Assignment(generation, tuple(sorted(stayed)))

    @property
    def size_bytes(self) -> int:
        """The memory of waiting events."""
        return sum(one.size_bytes + DELIVERY_BYTES for one in self.deliveries)


STEPS = st.one_of(
    st.tuples(st.just("open"), st.none(), st.none()),
    st.tuples(st.just("assign"), st.sets(st.integers(0, 2)), st.none()),
    st.tuples(st.just("acknowledge"), st.integers(0, 2), st.integers(0, 9)),
    st.tuples(st.just("deliver"), st.integers(0, 2), st.booleans()),
    st.tuples(st.just("close"), st.none(), st.none()),
    st.tuples(st.just("next"), st.none(), st.none()),
    st.tuples(st.just("next"), st.none(), st.none()),
)


class World:
    """The outbox, and the model beside it."""

    def __init__(self) -> None:
        self.memory, self.model, self.leaving = Memory(), Model(), 0
        self.outbox = PushOutbox(self.memory, BYTES_MAX)  # type: ignore[arg-type]

    async def step(self, number: int, what: str, which: Any, more: Any) -> None:
        """Do one thing, and compare."""
        model, outbox = self.model, self.outbox
        if what == "open":
            model.opened = [SessionOpened(str(number), 1)]
            outbox.put_opened(model.opened[0])
        elif what == "acknowledge":
            model.acknowledged[QUEUES[which]] = (more, number)
            outbox.put_committed(QUEUES[which], more, number)
        elif what == "deliver":
            delivery = Delivery(QUEUES[which], number, 1, 0, 1, batch=BATCH if more else None)
            model.deliveries += [] if model.closed else [delivery]
            outbox.deliver(delivery)
        elif what == "close":
            model.closed = model.closed or [SessionClosed(CloseReason.CLIENT_LEFT, str(number))]
            model.deliveries.clear()
            outbox.close(SessionClosed(CloseReason.CLIENT_LEFT, str(number)))
        elif what == "assign":
            self.assign(Assignment(number, tuple(QUEUES[one] for one in sorted(which))))
        elif what == "next":
            await self.next()
        assert self.memory.held == model.size_bytes + self.leaving

    def assign(self, event: Assignment) -> None:
        """The newest counts, and that a queue was revoked."""
        model = self.model
        model.assigned.append(event)
        dropped = [one for one in model.deliveries if one.queue not in event.queues]
        model.deliveries = [one for one in model.deliveries if one.queue in event.queues]
        assert self.outbox.put_assignment(event) == dropped

    async def next(self) -> None:
        """The caller has released the previous event; it waits if there is none."""
        expected, moved = self.model.next(), self.memory.moved_count
        asking = asyncio.ensure_future(self.outbox.next())  # noqa: TID251  # ends here
        await VirtualClock().sleep(0)  # a turn
        self.leaving = expected.size_bytes + DELIVERY_BYTES if isinstance(expected, Delivery) else 0
        assert self.memory.moved_count == moved + 1
        assert asking.done() == (expected is not None)
        if expected is None:
            asking.cancel()
            await asyncio.wait({asking})
        else:
            assert asking.result() == expected


@given(st.lists(STEPS, max_size=30))
@example(
    [
        ("assign", {0}, None),
        ("next", None, None),
        ("assign", set(), None),
        ("assign", set(), None),
        ("assign", {0}, None),
        ("next", None, None),
    ]
)
def test_events_go_by_their_rank_and_every_byte_is_counted_until_it_has_left(steps: list[tuple[str, Any, Any]]) -> None:
    """Opened, acknowledged, closed, assigned, deliveries."""

    async def walk() -> None:
        world = World()
        for number, step in enumerate(steps):
            await world.step(number + 1, *step)

    asyncio.run(walk())


@in_virtual_time
async def test_who_waits_for_an_event_or_for_room_is_woken() -> None:
    """By each kind of event; by a sent or dropped delivery, and by the end."""
    delivery = Delivery(QUEUES[0], 1, 1, 0, 1, batch=BATCH)
    telling: list[Callable[[PushOutbox], object]] = [
        lambda box: box.put_opened(SessionOpened("s", 1)),
        lambda box: box.put_committed(QUEUES[0], 1, 1),
        lambda box: box.put_assignment(Assignment(1, ())),
        lambda box: box.deliver(delivery),
        lambda box: box.close(CLOSED),
    ]
    for tell in telling:
        outbox = PushOutbox(Memory(), BYTES_MAX)  # type: ignore[arg-type]
        asking = asyncio.ensure_future(outbox.next())  # noqa: TID251  # awaited below
        await VirtualClock().sleep(0)  # it waits now
        tell(outbox)
        async with asyncio.timeout(60):
            assert await asking is not None
    freeing: list[Callable[[PushOutbox], object]] = [
        lambda box: box.next(),
        lambda box: box.put_assignment(Assignment(1, ())),
        lambda box: box.close(CLOSED),
    ]
    for free in freeing:
        outbox = PushOutbox(Memory(), len(BATCH.records))  # type: ignore[arg-type]
        await asyncio.wait_for(outbox.wait_for_room(), 60)
        outbox.deliver(delivery)
        waiting = asyncio.ensure_future(outbox.wait_for_room())  # noqa: TID251  # awaited below
        await VirtualClock().sleep(0)  # it waits now
        assert not waiting.done()
        freed = free(outbox)
        if asyncio.iscoroutine(freed):
            await freed
        await asyncio.wait_for(waiting, 5)
