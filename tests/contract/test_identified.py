"""A message with an application's id is stored once within the window, for retries of any client, over crashes."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from ortoo.common.errors import NOT_ACCEPTED_FIELD, Overloaded, Unavailable
from ortoo.common.process.background import Background
from ortoo.common.process.randomness import Randomness
from ortoo.common.records.batch import encode, open_batch
from ortoo.common.records.message import Message
from ortoo.enode.appends.deduplicated import DeduplicatedAppends, DeduplicatedPlace
from ortoo.enode.appends.router import AppendRouter
from ortoo.enode.log.results import AppendResult
from ortoo.testing.disks.faulty_disk import FaultyDisk
from ortoo.testing.disks.memory_disk import MemoryDisk
from ortoo.verification.time.virtual_clock import VirtualClock
from tests.contract.deferred_store import DeferredStore
from tests.contract.one_store import TOPIC

WINDOW_MS = 10_000


@asynccontextmanager
async def _opened(one: DeferredStore, kind: type[AppendRouter] = AppendRouter) -> AsyncIterator[DeduplicatedAppends]:
    async with Background("test") as background:
        intake = kind(one.store, one.delays, one.transactions)
        yield DeduplicatedAppends(one.store, intake, background, one.clock, window_ms=WINDOW_MS)


async def _send(it: DeduplicatedAppends, *pairs: tuple[str, str], queue_id: int = 0) -> list[DeduplicatedPlace]:
    batch = encode([Message(body.encode()) for body, _ in pairs], now_ms=1)
    return await it.append(TOPIC, queue_id, batch, [chosen for _, chosen in pairs])


async def _bodies(one: DeferredStore, queue_id: int = 0) -> list[bytes]:
    found: list[bytes] = []
    while (fetched := await one.store.fetch(TOPIC, queue_id, len(found))).batches:
        found += [body for stored in fetched.batches for body in open_batch(stored.batch).bodies()]
    return found


def test_a_duplicate_is_answered_with_the_first_place() -> None:
    """G4: retries in the same batch, in a later one, to another queue, at the same time, and after a crash."""
    clock = VirtualClock()

    async def scenario() -> None:
        one = DeferredStore(clock=clock)
        await one.open()
        async with _opened(one) as it:
            first = await _send(it, ("a", "1"), ("b", "2"), ("b again", "2"))
            assert [(one.offset, one.duplicate) for one in first] == [(0, False), (1, False), (1, True)]
            later = await _send(it, ("a again", "1"), ("c", "3"))
            assert [(one.offset, one.duplicate) for one in later] == [(0, True), (2, False)]
            [elsewhere] = await _send(it, ("a again", "1"), queue_id=1)
            assert (elsewhere.queue_id, elsewhere.offset, elsewhere.duplicate) == (0, 0, True)
            [left], [right] = await asyncio.gather(_send(it, ("d", "4")), _send(it, ("d", "4")))
            assert sorted([left.duplicate, right.duplicate]) == [False, True]
            assert left.offset == right.offset == 3
        await one.crash(7)
        async with _opened(one) as it:
            [after] = await _send(it, ("c again", "3"))
            assert (after.offset, after.duplicate) == (2, True)
            assert await _bodies(one) == [b"a", b"b", b"c", b"d"]
            await one.clock.sleep(WINDOW_MS / 1000 + 1)
            [new] = await _send(it, ("a once more", "1"))
            assert (new.offset, new.duplicate) == (4, False)
            await one.store.engine.housekeeping.expire_producers_and_ids()
            assert len(one.store.engine.state.ids) == 1
        await one.halt()
        await one.store.close()

    clock.run(scenario)


def test_who_sends_what_another_is_refused_for_is_not_refused_with_that() -> None:
    """The other request failed as a whole; a message of this one is stored, and it may be retried at once (G11)."""
    clock = VirtualClock()

    class RefusingFirst(AppendRouter):
        refusals = 1

        async def append(self, *write: Any, **more: Any) -> AppendResult:
            if self.refusals:
                self.refusals -= 1
                await clock.sleep(1)
                raise Overloaded("the disk is full", field=NOT_ACCEPTED_FIELD)
            return await super().append(*write, **more)

    async def scenario() -> None:
        one = DeferredStore(clock=clock)
        await one.open()
        async with _opened(one, RefusingFirst) as it, Background("other") as background:
            other = background.start_future("other", _send(it, ("a", "1")))
            await clock.sleep(0.1)
            with pytest.raises(Unavailable) as told:
                await _send(it, ("a", "1"), ("b", "2"))
            assert told.value.field != NOT_ACCEPTED_FIELD
            with pytest.raises(Overloaded):
                await other
            again = await _send(it, ("a", "1"), ("b", "2"))
            assert [(place.offset, place.duplicate) for place in again] == [(1, False), (0, True)]
        await one.halt()
        await one.store.close()

    clock.run(scenario)


def test_delayed_messages_have_ids_as_well() -> None:
    """The second send gets the number of the first delayed message; one message is delivered."""
    clock = VirtualClock()

    async def scenario() -> None:
        one = DeferredStore(clock=clock)
        await one.open()
        async with _opened(one) as it:
            due = Message(b"later", deliver_at_ms=clock.now_ms() + 2_000)
            places = [(await it.append(TOPIC, 0, encode([due], now_ms=1), ["x"]))[0] for _ in range(2)]
            assert places[0].offset == places[1].offset
            assert [place.duplicate for place in places] == [False, True]
            await clock.sleep(3)
            assert [body for body, _ in await one.visible()] == [b"later"]
        await one.halt()
        await one.store.close()

    clock.run(scenario)


def test_power_cuts_at_any_point_store_an_id_once() -> None:
    """After a power cut at any disk operation and a retry, each id is stored once, at the place of its answer."""
    clock = VirtualClock()
    told: list[tuple[int, str, int]] = []
    memory = MemoryDisk(record=True)

    async def first_life() -> None:
        one = DeferredStore(clock=clock, disk=FaultyDisk(memory))
        await one.open()
        async with _opened(one) as it:
            for number in range(12):
                chosen = str(number % 8)
                [place] = await _send(it, (chosen, chosen))
                told.append((len(memory.operations), chosen, place.offset))
        await one.halt()

    clock.run(first_life)
    for number in range(16):
        point = len(memory.operations) * (number + 1) // 16
        left = MemoryDisk.replayed(memory.operations[:point]).after_crash(Randomness(number))
        again = VirtualClock(clock.now_ms())

        async def second_life(left: MemoryDisk = left, again: VirtualClock = again, point: int = point) -> None:
            one = DeferredStore(clock=again, disk=FaultyDisk(left))
            await one.open()
            async with _opened(one) as it:
                places = {chosen: (await _send(it, (chosen, chosen)))[0] for chosen in map(str, range(8))}
                assert sorted(await _bodies(one)) == [b"%d" % one for one in range(8)]
                for at, chosen, offset in told:
                    if at <= point:
                        assert places[chosen].offset == offset
            await one.halt()
            await one.store.close()

        again.run(second_life)
