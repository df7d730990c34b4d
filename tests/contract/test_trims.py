"""Trimmed queues: messages that an operator made unreadable stay so, and groups continue behind them."""

import pytest

from ortoo.common.errors import Invalid, NotFound, OutOfRange
from ortoo.common.records.batch import encode
from ortoo.common.records.message import Message
from ortoo.enode.observe.retention_losses import RetentionLosses
from ortoo.enode.store.group_offsets import EVERYTHING
from ortoo.enode.store.store import Store
from tests.contract.one_store import TOPIC
from tests.contract.pop_store import GROUP, INVISIBLE_MS, PopStore, play, texts


async def readable(store: Store, queue_id: int = 0) -> tuple[int, int]:
    """The range of a queue; a read below it is refused with that range."""
    held = store.queue_range(TOPIC, queue_id)
    if held.begin_offset:
        with pytest.raises(OutOfRange) as refused:
            await store.fetch(TOPIC, queue_id, held.begin_offset - 1)
        assert (refused.value.begin_offset, refused.value.end_offset) == (held.begin_offset, held.end_offset)
    fetched = await store.fetch(TOPIC, queue_id, held.begin_offset)
    assert fetched.end_offset == held.end_offset
    return held.begin_offset, held.end_offset


def test_trimmed_messages_stay_unreadable_over_restarts_crashes_and_retention() -> None:
    """The begin is in the log and in its checkpoints, and a deletion of segments does not move it back."""

    async def scenario(it: PopStore) -> None:
        one = it.one
        for number in range(60):
            await one.append(b"%03d" % number * 50, count=2)
        [trimmed] = await it.store.trims.trim(TOPIC, {0: 90})
        assert trimmed == (0, 0, 90, 120)
        assert await readable(it.store) == (90, 120)
        assert await readable(it.store, 1) == (0, 0)
        await it.restart()
        assert await readable(it.store) == (90, 120)
        await it.crash(1)
        assert await readable(it.store) == (90, 120)
        await it.store.engine.housekeeping.checkpoint()
        await it.crash(2)
        assert await readable(it.store) == (90, 120)
        keeping = it.store.engine.housekeeping
        await keeping.delete_below(it.store.engine.catalog.segments[1].base)
        assert await readable(it.store) == (90, 120)
        await it.restart()
        assert await readable(it.store) == (90, 120)

    play(scenario)


def test_a_purge_takes_everything_that_was_accepted_before_it() -> None:
    """Also messages that are on their way to the disk. The next message is readable."""

    async def scenario(it: PopStore) -> None:
        sends = [it.one.append(b"x") for _ in range(9)]
        tasks = [it.background.spawn("send", one) for one in sends]
        await it.one.append(b"y")
        [trimmed, *_] = await it.store.trims.trim(TOPIC, dict.fromkeys(range(3), EVERYTHING))
        assert trimmed.begin_offset == trimmed.end_offset == 10
        for task in tasks:
            await task
        assert (await it.one.append(b"z")).first_offset == 10
        assert await readable(it.store) == (10, 11)
        [again, *_] = await it.store.trims.trim(TOPIC, {0: 4})
        assert again == (0, 10, 10, 11)

    play(scenario)


def test_groups_continue_behind_trimmed_messages() -> None:
    """Offsets below the begin move to it, and others stay. Consumers that hold locks must take them again."""

    async def scenario(it: PopStore) -> None:
        for _ in range(9):
            await it.one.append(b"x")
        await it.store.offsets.commit(TOPIC, "slow", {0: 2})
        await it.store.offsets.commit(TOPIC, "fast", {0: 8})
        generation = it.store.locks.table.fence((TOPIC, "slow", 0), 7).generation
        await it.store.trims.trim(TOPIC, {0: 5})
        assert it.store.offsets.of(TOPIC, "slow") == {0: 5}
        assert it.store.offsets.of(TOPIC, "fast") == {0: 8}
        assert await it.store.offsets.commit_each(TOPIC, "fast", [(0, 9, 0)]) == []
        held = it.store.locks.table.get((TOPIC, "slow", 0))
        assert held is not None
        assert held.generation > generation
        await it.restart()
        assert it.store.offsets.of(TOPIC, "slow") == {0: 5}
        await it.store.offsets.commit(TOPIC, "slow", {0: 3})  # a late commit of a message that it had read before
        await it.restart()  # from a checkpoint, which must give the same state as the log
        assert it.store.offsets.of(TOPIC, "slow") == {0: 3}
        assert RetentionLosses(it.store, it.one.clock).totals == {}

    play(scenario)


def test_pops_continue_behind_trimmed_messages() -> None:
    """Leased messages below the begin are not delivered again. Later ones are, as before."""

    async def scenario(it: PopStore) -> None:
        await it.send("a", "b", "c", "d")
        first = await it.pop(2)
        assert texts(first) == ["a", "b"]
        await it.store.trims.trim(TOPIC, {0: 3})
        assert it.store.offsets.of(TOPIC, GROUP)[0] == 3
        assert texts(await it.pop()) == ["d"]
        assert await it.ack(first) == 0  # as for every finished message
        await it.one.clock.sleep(INVISIBLE_MS / 1000 + 1)
        assert texts(await it.pop(invisible_ms=1)) == ["d"]
        await it.restart()
        await it.one.clock.sleep(1)
        assert texts(await it.pop()) == ["d"]

    play(scenario)


def test_a_group_that_pops_for_the_first_time_during_a_trim_continues_behind_it() -> None:
    """Its begin comes after the trim in the log, and was chosen before the trim was durable."""

    async def scenario(it: PopStore) -> None:
        await it.send("a", "b", "c", "d")
        trim = it.background.start_future("trim", it.store.trims.trim(TOPIC, {0: 3}))
        while not it.store.engine.appender.pending_bytes:
            await it.one.clock.sleep(0)  # until the trim is accepted
        assert texts(await it.pop(2)) == ["a", "b"]
        await trim
        last = await it.pop()
        assert texts(last) == ["d"]
        await it.ack(last)
        assert it.store.offsets.of(TOPIC, GROUP)[0] == 4

    play(scenario)


def test_a_search_does_not_find_trimmed_messages() -> None:
    """The index still has their keys."""

    async def scenario(it: PopStore) -> None:
        for number in range(4):
            await it.store.append(TOPIC, 0, encode([Message(b"%d" % number, keys=("k",))], now_ms=1))
        assert len(await it.store.find_messages(TOPIC, key="k")) == 4
        await it.store.trims.trim(TOPIC, {0: 3})
        assert [one.offset for one in await it.store.find_messages(TOPIC, key="k")] == [3]

    play(scenario)


def test_wrong_trims_are_refused() -> None:
    """The error names the topic or the queue, and nothing is trimmed."""

    async def scenario(it: PopStore) -> None:
        await it.one.append(b"x")
        with pytest.raises(NotFound):
            await it.store.trims.trim(99, {0: 1})
        for queue_id, offset in ((3, 0), (0, -2), (0, 1 << 62)):
            with pytest.raises(Invalid, match="expected 0 or more, of a queue below 3"):
                await it.store.trims.trim(TOPIC, {1: 0, queue_id: offset})
        assert await readable(it.store) == (0, 1)

    play(scenario)


def test_a_deleted_topic_leaves_no_trim() -> None:
    """A topic created again under the id of a test begins at its first offset."""

    async def scenario(it: PopStore) -> None:
        await it.one.append(b"x")
        await it.store.trims.trim(TOPIC, {0: 1})
        await it.store.delete_topics([TOPIC])
        assert it.store.engine.state.trims.of(TOPIC, 0) == 0

    play(scenario)
