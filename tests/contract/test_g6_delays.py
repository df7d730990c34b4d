"""G6: a delayed message is never visible before its time, a recalled one never, also after a crash."""

import asyncio
from collections.abc import Callable

import pytest

from ortoo.common.errors import NotFound, OrtooError, Overloaded, Unavailable
from ortoo.common.process.background import Background
from ortoo.common.process.randomness import Randomness
from ortoo.common.records.batch import Message, encode
from ortoo.common.records.sealed_batch import StoredBatch
from ortoo.enode.changes.kinds import StateChange
from ortoo.enode.delays.segment_rescue import SegmentRescue
from ortoo.enode.log.settings import FlushMode
from tests.contract.deferred_store import DeferredStore, power_cuts
from tests.contract.one_store import QUEUES, TOPIC

DAY_MS = 86_400_000


@pytest.mark.parametrize("seed", range(6))
async def test_none_is_early_lost_or_twice_whatever_the_power_does(seed: int) -> None:
    """G6: after sends, recalls and power cuts at any moment, each was delivered once, recalled ones never."""
    chance, one = Randomness(seed), DeferredStore()
    await one.open()
    due: dict[bytes, int] = {}
    timers: dict[bytes, tuple[int, int]] = {}
    recalled: set[bytes] = set()
    for step in range(60):
        action = chance.below(10)
        if action < 5:
            now_ms = one.clock.now_ms()
            times = [now_ms + chance.below(20_000 if chance.below(4) else 300 * DAY_MS) for _ in range(1 + action)]
            bodies = [b"%d-%d" % (step, row) for row in range(len(times))]
            messages = [Message(body, deliver_at_ms=at) for body, at in zip(bodies, times, strict=True)]
            first = (await one.delays.append(TOPIC, step % QUEUES, encode(messages, now_ms=now_ms))).first_offset
            due |= zip(bodies, times, strict=True)
            timers |= {body: (first + row, times[row]) for row, body in enumerate(bodies)}
        elif action < 7 and timers:
            body = sorted(timers)[chance.below(len(timers))]
            try:
                await one.delays.recall(TOPIC, *timers[body])
                recalled.add(body)
            except OrtooError:
                assert due[body] <= one.clock.now_ms() or body in recalled
        elif action == 7:
            await one.crash(seed * 1000 + step)
        else:
            await one.clock.pass_time(chance.below(4_000) / 1000)
    for step_s in (30, 200 * 86_400, 200 * 86_400):
        one.clock.advance(step_s)
        await one.clock.pass_time(2)
    seen = await one.visible()
    assert sorted(body for body, _ in seen) == sorted(set(due) - recalled)
    assert all(due[body] <= stored_at_ms for body, stored_at_ms in seen)
    assert one.store.timers.live_count == 0
    await one.halt()
    await one.store.close()


async def test_an_acknowledged_recall_survives_a_power_cut() -> None:
    """G6: recalled messages stay recalled, the others are delivered, also with a power cut during delivery."""
    one = DeferredStore()
    await one.open()
    at_ms = one.clock.now_ms() + 5_000
    await one.delays.append(TOPIC, 0, encode([Message(b"a", deliver_at_ms=at_ms)] * 2, now_ms=1))
    await one.delays.recall(TOPIC, 1, at_ms)
    await one.crash(1)
    with pytest.raises(NotFound):
        await one.delays.recall(TOPIC, 1, at_ms)
    one.clock.advance(5.001)
    await one.crash(2)
    await one.clock.pass_time(1)
    assert [body for body, _ in await one.visible()] == [b"a"]
    await one.halt()
    await one.store.close()


async def send_recall_and_deliver(one: DeferredStore, said: Callable[[str, bytes], None]) -> None:
    """Messages for the next two seconds, some of them recalled, while the others are delivered."""
    for number in range(6):
        now_ms = one.clock.now_ms()
        bodies = [b"%d-%d" % (number, row) for row in range(3)]
        times = [now_ms + 100 + 300 * row for row in range(3)]
        messages = [Message(body, deliver_at_ms=at) for body, at in zip(bodies, times, strict=True)]
        first = (await one.delays.append(TOPIC, number % QUEUES, encode(messages, now_ms=1))).first_offset
        for body in bodies:
            said("sent", body)
        await one.clock.pass_time(0.15)
        said("recalling", bodies[2])
        await one.delays.recall(TOPIC, first + 2, times[2])
        said("recalled", bodies[2])
    await one.clock.pass_time(1)


async def test_a_delivery_and_the_end_of_its_timer_cannot_be_torn_apart() -> None:
    """G6: after a power cut at any disk operation, with partial unsynced data, each came once or not yet."""
    async for said, seen, _ in power_cuts(send_recall_and_deliver, points=80):
        assert max(seen.values(), default=1) == 1
        for what, body in said:
            if what == "recalled":
                assert body not in seen
            elif what == "sent" and ("recalling", body) not in said:
                assert body in seen


@pytest.mark.parametrize("how", ["its sender went away", "it was acknowledged before the disk had it"])
async def test_the_only_message_that_waits_is_delivered_in_time(how: str) -> None:
    """The delivery task sleeps long while there are no due messages, and wakes when one is stored."""
    one = DeferredStore()
    await one.open()
    await one.clock.pass_time(1)
    batch = encode([Message(b"later", deliver_at_ms=one.clock.now_ms() + 2_000)], now_ms=1)
    if how == "its sender went away":
        async with Background("sender") as background:
            sending = background.spawn("send", one.delays.append(TOPIC, 0, batch))
            while not one.store.engine.appender.pending_bytes:
                await one.clock.sleep(0)
            sending.cancel()
    else:
        await one.delays.append(TOPIC, 0, batch, FlushMode.ASYNC)
    await one.clock.pass_time(3)
    assert [body for body, _ in await one.visible()] == [b"later"]
    await one.halt()
    await one.store.close()


class SlowStore:
    """Delays reads of waiting messages and changes of the state, which then succeed or fail as configured."""

    def __init__(self, one: DeferredStore) -> None:
        self.reading, self.changing = asyncio.Event(), asyncio.Event()
        self.read_error: OrtooError | None = None
        self.change_error: OrtooError | None = None
        read, change = one.store.read_deferred, one.store.change

        async def slow_read(system_topic_id: int, place: int, *, bytes_max: int) -> tuple[StoredBatch, ...]:
            await self.reading.wait()
            if self.read_error is not None:
                raise self.read_error
            return await read(system_topic_id, place, bytes_max=bytes_max)

        async def slow_change(*changes: StateChange) -> None:
            await self.changing.wait()
            if self.change_error is not None:
                raise self.change_error
            await change(*changes)

        one.store.read_deferred, one.store.change = slow_read, slow_change  # type: ignore[method-assign]


@pytest.mark.parametrize("is_refused", [True, False])
async def test_what_comes_due_while_it_is_recalled_is_delivered_if_the_recall_is_refused(is_refused: bool) -> None:
    """G6: it is neither lost until the next start if the recall is refused, nor visible if it succeeds."""
    one = DeferredStore()
    await one.open()
    slow = SlowStore(one)
    slow.reading.set()
    at_ms = one.clock.now_ms() + 5_000
    await one.delays.append(TOPIC, 0, encode([Message(b"a", deliver_at_ms=at_ms)], now_ms=1))
    await one.clock.pass_time(4)
    async with Background("test") as background:
        recalling = background.start_future("recall", one.delays.recall(TOPIC, 0, at_ms))
        await one.clock.pass_time(0.5)
        with pytest.raises(Unavailable):
            await one.delays.recall(TOPIC, 0, at_ms)
        await one.clock.pass_time(2.5)
        slow.change_error = Overloaded("the disk is full") if is_refused else None
        slow.changing.set()
        await asyncio.wait([recalling])
        assert isinstance(recalling.exception(), Overloaded) is is_refused
    await one.clock.pass_time(1)
    assert [body for body, _ in await one.visible()] == ([b"a"] if is_refused else [])
    await one.halt()
    await one.store.close()


@pytest.mark.parametrize("is_refused", [True, False])
async def test_what_is_recalled_while_it_is_read_is_not_delivered_unless_the_recall_is_refused(
    is_refused: bool,
) -> None:
    """G6: a failed read releases only the messages that no other task works on."""
    one = DeferredStore()
    await one.open()
    slow = SlowStore(one)
    slow.read_error = Unavailable("the disk is busy")
    at_ms = one.clock.now_ms() + 5_000
    await one.delays.append(TOPIC, 0, encode([Message(b"a", deliver_at_ms=at_ms)], now_ms=1))
    await one.clock.pass_time(4)
    async with Background("test") as background:
        recalling = background.start_future("recall", one.delays.recall(TOPIC, 0, at_ms))
        await one.clock.pass_time(0.5)
        slow.reading.set()
        await one.clock.pass_time(0.1)
        slow.read_error = None
        await one.clock.pass_time(3)
        assert await one.visible() == []
        slow.change_error = Overloaded("the disk is full") if is_refused else None
        slow.changing.set()
        await asyncio.wait([recalling])
        assert isinstance(recalling.exception(), Overloaded) is is_refused
    await one.clock.pass_time(1)
    assert [body for body, _ in await one.visible()] == ([b"a"] if is_refused else [])
    await one.halt()
    await one.store.close()


async def test_a_deletion_that_is_refused_costs_no_delayed_message() -> None:
    """G6, G15: messages that are due or rewritten during a topic's deletion are lost only if it succeeds."""
    one = DeferredStore()
    await one.open()
    at_ms = one.clock.now_ms() + 2_000
    await one.delays.append(TOPIC, 0, encode([Message(b"a", deliver_at_ms=at_ms)], now_ms=1))
    await one.delays.append(TOPIC, 0, encode([Message(b"b", deliver_at_ms=at_ms + DAY_MS)], now_ms=1))
    one.store._deleting_topic_ids.add(TOPIC)  # as while disk space is reserved
    await one.clock.pass_time(3)
    with pytest.raises(NotFound):
        await SegmentRescue(one.store, clock=one.clock).rescue(2)
    assert one.store.timers.live_count == 2
    one.store._deleting_topic_ids.clear()
    await one.clock.pass_time(1)
    assert [body for body, _ in await one.visible()] == [b"a"]
    assert await SegmentRescue(one.store, clock=one.clock).rescue(2)
    await one.store.delete_topics([TOPIC])
    one.clock.advance(DAY_MS / 1000)
    await one.clock.pass_time(2)
    assert one.store.timers.live_count == 0
    await one.halt()
    await one.store.close()
