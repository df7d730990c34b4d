"""The events that wait for a client."""

import asyncio

import pytest

from ortoo.common.process.background import Background
from ortoo.common.process.memory_budget import MemoryBudget
from ortoo.common.records.batch import encode
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
from ortoo.verification.time.virtual_time import in_virtual_time

A, B = Queue("t", "e", 0), Queue("t", "e", 1)


def delivery(queue: Queue, first: int) -> Delivery:
    """One message."""
    return Delivery(queue, 1, 7, first, first + 1, 0, encode([b"x"], now_ms=1), b"", 1)


@in_virtual_time
async def test_events_come_in_their_order() -> None:
    """Opened first, then durable offsets, then the last assignment, then deliveries in order."""
    outbox = PushOutbox(MemoryBudget().share("push"))
    outbox.put_assignment(Assignment(0, (A, B)))
    outbox.put_assignment(Assignment(1, (A,)))
    outbox.deliver(delivery(A, 0))
    outbox.deliver(delivery(A, 1))
    outbox.put_committed(A, 5, 1)
    outbox.put_committed(A, 6, 1)
    outbox.put_opened(SessionOpened("s", 1))
    assert isinstance(await outbox.next(), SessionOpened)
    assert await outbox.next() == DurableOffsets([(A, 6, 1)])
    assert await outbox.next() == Assignment(1, (A,))
    assert [(await outbox.next()).first_offset for _ in range(2)] == [0, 1]  # type: ignore[union-attr]


@in_virtual_time
async def test_deliveries_of_a_lost_queue_never_leave() -> None:
    """After the assignment that revokes a queue none of its deliveries is sent (E-075)."""
    outbox = PushOutbox(MemoryBudget().share("push"))
    outbox.deliver(delivery(A, 0))
    outbox.deliver(delivery(B, 0))
    assert [dropped.queue for dropped in outbox.put_assignment(Assignment(2, (B,)))] == [A]
    assert await outbox.next() == Assignment(2, (B,))
    last = await outbox.next()
    assert isinstance(last, Delivery)
    assert last.queue == B


@in_virtual_time
async def test_a_full_outbox_makes_feeders_wait() -> None:
    """There is space again when a delivery was sent."""
    outbox = PushOutbox(MemoryBudget().share("push"), bytes_max=1)
    outbox.deliver(delivery(A, 0))
    async with asyncio.timeout(60), Background("test") as background:
        waiting = background.spawn("room", outbox.wait_for_room())
        await outbox.next()
        await waiting


@in_virtual_time
async def test_offsets_that_only_move_on_are_bounded_as_well() -> None:
    """At the end of a queue without matches there may be one for each message."""
    memory = MemoryBudget().share("push")
    outbox = PushOutbox(memory, bytes_max=10 * DELIVERY_BYTES)
    for offset in range(10):
        await asyncio.wait_for(outbox.wait_for_room(), 60)
        outbox.deliver(Delivery(A, 1, 7, offset, offset + 1))
    assert memory.bytes == 10 * DELIVERY_BYTES
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(outbox.wait_for_room(), 1)
    await outbox.next()
    await asyncio.wait_for(outbox.wait_for_room(), 60)


@in_virtual_time
async def test_closing_drops_deliveries_and_says_why() -> None:
    """After the close only durable offsets and the reason are sent."""
    outbox = PushOutbox(MemoryBudget().share("push"))
    outbox.deliver(delivery(A, 0))
    outbox.put_committed(A, 1, 1)
    outbox.close(SessionClosed(CloseReason.SLOW_CONSUMER, "slow"))
    outbox.close(SessionClosed(CloseReason.CLIENT_LEFT, "later"))
    assert isinstance(await outbox.next(), DurableOffsets)
    assert await outbox.next() == SessionClosed(CloseReason.SLOW_CONSUMER, "slow")
