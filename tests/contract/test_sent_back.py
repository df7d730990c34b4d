"""Retry copies are made once, for any number of retries of a client that lost the answer, over power cuts."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from ortoo.common.errors import Conflict, Invalid
from ortoo.common.groups.pop import PopRules, RetryRequest
from ortoo.common.process.background import Background
from ortoo.common.process.randomness import Randomness
from ortoo.common.records.batch import encode, open_batch
from ortoo.common.records.message import Message
from ortoo.common.records.text_rules import COPY_LIMITS, PROPERTIES_MAX
from ortoo.enode.appends.router import AppendRouter
from ortoo.enode.delays.segment_rescue import SegmentRescue
from ortoo.enode.log.results import TopicCopy
from ortoo.enode.pops.reading import BatchCache
from ortoo.enode.pops.retry_copies import RetryCopies
from ortoo.enode.store.store import Store
from ortoo.testing.disks.faulty_disk import FaultyDisk
from ortoo.testing.disks.memory_disk import MemoryDisk
from ortoo.verification.time.virtual_clock import VirtualClock
from tests.contract.deferred_store import DeferredStore
from tests.contract.one_store import TOPIC

RETRIES, LETTERS = 7, 8
RULES = PopRules(attempts_max=16, dead_letter_topic_id=LETTERS)


@asynccontextmanager
async def _opened(one: DeferredStore) -> AsyncIterator[RetryCopies]:
    await one.store.put_topics([TopicCopy(RETRIES, "%RETRY%g", 1, 1), TopicCopy(LETTERS, "%DLQ%g", 1, 1)])
    async with Background("test") as background:
        intake = AppendRouter(one.store, one.delays, one.transactions)
        yield RetryCopies(one.store, BatchCache(one.store), intake, one.clock, background)


def _wish(*offsets: int, delay_ms: int = 0, park: bool = False) -> RetryRequest:
    return RetryRequest("g", TOPIC, 0, offsets, RETRIES, (delay_ms,), park, RULES)


async def _bodies(store: Store, topic_id: int) -> list[bytes]:
    at, found = store.queue_range(topic_id, 0).begin_offset, []
    while (fetched := await store.fetch(topic_id, 0, at)).batches:
        found += [body for one in fetched.batches for body in open_batch(one.batch).bodies()]
        at = fetched.next_offset
    return found


async def _send(one: DeferredStore, count: int) -> None:
    await one.store.append(TOPIC, 0, encode([Message(b"%d" % number) for number in range(count)], now_ms=1))


def test_asking_again_copies_nothing_until_the_group_has_passed_the_message() -> None:
    """E-171: retries at once, later, and for a waiting copy. A park is another request, and a reset starts over."""
    clock = VirtualClock()

    async def scenario() -> None:
        one = DeferredStore(clock=clock)
        await one.open()
        async with _opened(one) as it:
            await _send(one, 3)
            left, right = await asyncio.gather(it.retry(_wish(0, 1)), it.retry(_wish(0, 1)))
            assert left == right
            for _ in range(3):
                await it.retry(_wish(2, delay_ms=60_000))
            assert await _bodies(one.store, RETRIES) == [b"0", b"1"]
            assert one.store.timers.live_count == 1
            await it.retry(_wish(0, park=True))
            assert await _bodies(one.store, LETTERS) == [b"0"]
            await one.store.offsets.commit(TOPIC, "g", {0: 2})
            assert one.store.engine.state.sent_back.count((TOPIC, "g", 0)) == 1
            await one.store.offsets.reset(TOPIC, "g", {0: 0})
            await it.retry(_wish(2))
            assert await _bodies(one.store, RETRIES) == [b"0", b"1", b"2"]
        await one.halt()
        await one.store.close()

    clock.run(scenario)


def test_a_park_of_an_unfinished_message_finds_the_commits_that_waited_before_it() -> None:
    """A commit and a park wait for room in the log, in this order. The park is refused, and stores no dead letter."""
    clock = VirtualClock()

    async def scenario() -> None:
        one = DeferredStore(clock=clock)
        await one.open()
        async with _opened(one) as it, Background("test") as background:
            await _send(one, 2)
            appender = one.store.engine.appender
            async with appender._in_turn():
                background.spawn("commit", one.store.offsets.commit(TOPIC, "g", {0: 1}))
                while appender._space_waiters < 2:
                    await clock.sleep(0)
                parking = asyncio.gather(it.retry(replace(_wish(0, park=True), unfinished_only=True)))
                while appender._space_waiters < 3:
                    await clock.sleep(0)
            with pytest.raises(Conflict, match="has finished the message at offset 0 meanwhile"):
                await parking
            assert await _bodies(one.store, LETTERS) == []
            await it.retry(replace(_wish(1, park=True), unfinished_only=True))
            assert await _bodies(one.store, LETTERS) == [b"1"]
        await one.halt()
        await one.store.close()

    clock.run(scenario)


def test_power_cuts_at_any_point_leave_one_copy() -> None:
    """E-171, G1: with a retry after each cut, every message has exactly one copy or one dead letter."""
    clock = VirtualClock()
    memory = MemoryDisk(record=True)

    async def first_life() -> None:
        one = DeferredStore(clock=clock, disk=FaultyDisk(memory))
        await one.open()
        async with _opened(one) as it:
            await _send(one, 6)
            for offset in range(6):
                await it.retry(_wish(offset, park=offset % 3 == 2))
        await one.halt()

    clock.run(first_life)
    begin = len(memory.operations) // 2
    for number in range(14):
        point = begin + (len(memory.operations) - begin) * number // 13
        left = MemoryDisk.replayed(memory.operations[:point]).after_crash(Randomness(number))

        again = VirtualClock(clock.now_ms())

        async def second_life(left: MemoryDisk = left, again: VirtualClock = again) -> None:
            one = DeferredStore(clock=again, disk=FaultyDisk(left))
            await one.open()
            async with _opened(one) as it:
                if not one.store.queue_range(TOPIC, 0).end_offset:
                    await _send(one, 6)
                for offset in range(6):
                    await it.retry(_wish(offset, park=offset % 3 == 2))
                assert sorted(await _bodies(one.store, RETRIES)) == [b"0", b"1", b"3", b"4"]
                assert sorted(await _bodies(one.store, LETTERS)) == [b"2", b"5"]
            await one.halt()
            await one.store.close()

        again.run(second_life)


@pytest.mark.parametrize("error", ["boom:\n  at line 2", "\x00\x9f" * 700])
async def test_a_full_message_waits_for_its_next_try_is_stored_again_and_parked_at_last(error: str) -> None:
    """G9: the maximum number of properties, and an error of several lines."""
    one = DeferredStore()
    await one.open()
    async with _opened(one) as it:
        properties = {f"p{number}": "v" for number in range(PROPERTIES_MAX)}
        await one.store.append(TOPIC, 0, encode([Message(b"a", properties=properties)], now_ms=1))
        await it.retry(replace(_wish(0, delay_ms=60_000), error=error))
        assert await SegmentRescue(one.store, clock=one.clock).rescue(1)
        await one.clock.pass_time(61)
        last = RetryRequest("g", RETRIES, 0, (0,), RETRIES, (0,), False, replace(RULES, attempts_max=2), error=error)
        await it.retry(last)
        [letter] = open_batch((await one.store.fetch(LETTERS, 0, 0)).batches[0].batch)
        assert {name: letter.properties[name] for name in properties} == properties
        assert letter.properties["DLQ_ATTEMPTS"] == "2"
        assert len(letter.properties["DLQ_ERROR"]) == min(len(error), 1_024)
    await one.halt()
    await one.store.close()


async def test_tries_that_a_producer_tells_of_are_not_the_groups() -> None:
    """G9: a message that is forwarded with all properties has all attempts in the next group."""
    one = DeferredStore()
    await one.open()
    async with _opened(one) as it:
        for said in ("15", "\u00b2", "9" * 5_000):
            message = Message(b"a", properties={"RECONSUME_TIMES": said})
            await one.store.append(TOPIC, 0, encode([message], now_ms=1, limits=COPY_LIMITS))
        await it.retry(_wish(0, 1, 2))
        copies = [one for batch in (await one.store.fetch(RETRIES, 0, 0)).batches for one in open_batch(batch.batch)]
        assert [copy.properties["RECONSUME_TIMES"] for copy in copies] == ["1"] * 3
    await one.halt()
    await one.store.close()


async def test_where_a_message_lay_is_not_what_its_producer_made_up() -> None:
    """G9: system properties of a message in an ordinary topic, which earlier versions stored, do not count."""
    one = DeferredStore()
    await one.open()
    async with _opened(one) as it:
        forged = {"RETRY_TOPIC": "x", "ORIGIN_MESSAGE_ID": "y", "ORIGIN_QUEUE_ID": "7", "DLQ_PRIORITY": "9"}
        await one.store.append(TOPIC, 0, encode([Message(b"a", properties=forged)], now_ms=1, limits=COPY_LIMITS))
        await it.retry(_wish(0, park=True))
        [letter] = open_batch((await one.store.fetch(LETTERS, 0, 0)).batches[0].batch)
        said = letter.properties
        assert (said["DLQ_ORIGIN_TOPIC"], said["DLQ_ORIGIN_QUEUE_ID"], said["DLQ_ORIGIN_OFFSET"]) == (
            "orders",
            "0",
            "0",
        )
        assert "DLQ_PRIORITY" not in said
    await one.halt()
    await one.store.close()


async def test_what_producers_may_not_delay_a_groups_back_off_may() -> None:
    """G9: an operator's limit for producers does not prevent a message's next attempt."""
    one = DeferredStore()
    await one.open()
    one.delays.delay_max_ms = 60_000
    async with _opened(one) as it:
        await _send(one, 1)
        await it.retry(_wish(0, delay_ms=7_200_000))
        assert one.store.timers.live_count == 1
        late = encode([Message(b"x", deliver_at_ms=one.clock.now_ms() + 60_001)], now_ms=1)
        with pytest.raises(Invalid, match="no time within"):
            await one.delays.append(TOPIC, 0, late)
    await one.halt()
    await one.store.close()
