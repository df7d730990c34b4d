"""The lines of groups: their start offsets, the order of queues, and their lifetime."""

import gc
import weakref
from dataclasses import replace

import pytest

from ortoo.common.groups.pop import PopRules
from ortoo.enode.changes.groups import GroupDropped
from ortoo.enode.changes.kinds import OffsetsCommitted
from ortoo.enode.pops import lines as module
from ortoo.enode.pops.lines import PopLines
from ortoo.enode.store.store import Store
from tests.contract.one_store import TOPIC, OneStore
from tests.contract.pop_store import GROUP, INVISIBLE_MS, PopStore, attempts, play, texts


def test_queues_are_looked_at_in_turn_or_the_largest_id_first() -> None:
    """Round-robin so that none is left out, or by priority."""

    async def scenario(it: PopStore) -> None:
        for queue_id in range(3):
            await it.send("a", "b", queue_id=queue_id)
        assert sorted([(await it.pop(1)).batches[0].queue_id for _ in range(3)]) == [0, 1, 2]
        found = [(await it.pop(1, by_priority=True)).batches[0].queue_id for _ in range(3)]
        assert found == [2, 1, 0]
        group = PopLines(it.store, it.one.clock).group(TOPIC, GROUP)
        assert list(group.queue_order((), PopRules())) == []
        assert [list(group.queue_order((0, 1, 2), PopRules())) for _ in range(2)] == [[2, 0, 1], [0, 1, 2]]

    play(scenario)


def test_a_group_begins_where_it_was_by_offsets_else_as_it_says() -> None:
    """At the first message or at the end; an operator's reset takes effect at once."""

    async def scenario(it: PopStore) -> None:
        await it.send("a", "b", "c")
        await it.store.engine.store([OffsetsCommitted(TOPIC, GROUP, 0, ((0, 1),))])
        assert texts(await it.pop(from_last=True)) == ["b", "c"]
        await it.store.engine.store([OffsetsCommitted(TOPIC, GROUP, 0, ((0, 2),))])
        assert texts(await it.pop()) == ["c"]
        await it.send("d", queue_id=1)
        assert texts(await it.pop()) == ["d"]
        await it.store.engine.store([GroupDropped(TOPIC, GROUP)])
        assert texts(await it.pop(from_last=True)) == []
        await it.send("e")
        assert texts(await it.pop()) == ["e"]

    play(scenario)


def test_a_lease_of_messages_with_different_attempts_is_written_down_as_it_is() -> None:
    """Each message is delivered again as its next attempt, also after a restart."""

    async def scenario(it: PopStore) -> None:
        it.rules = replace(it.rules, attempts_max=9)
        await it.send("a", "b", "c", "d")
        await it.nack(await it.pop(1))
        await it.pop(1, invisible_ms=1)
        await it.one.clock.sleep(0.1)
        assert (await it.pop(1)).batches[0].attempts == (3,)
        await it.one.clock.sleep(INVISIBLE_MS / 1000)
        await it.nack(await it.pop(1), counts=False)
        popped = await it.pop()
        assert list(attempts(popped)) == [4, 1, 1, 1]
        await it.restart()
        await it.one.clock.sleep(INVISIBLE_MS / 1000 + 1)
        assert list(attempts(await it.pop())) == [5, 2, 2, 2]

    play(scenario)


def test_one_pop_brings_several_messages_of_a_message_group_where_its_rules_say_so() -> None:
    """Otherwise only the first one."""

    async def scenario(it: PopStore) -> None:
        await it.send("a", "b", "c", group="m")
        assert texts(await it.pop(in_order=True, invisible_ms=10)) == ["a"]
        await it.one.clock.sleep(1.0)
        assert texts(await it.pop(in_order=True, order_batched=True)) == ["a", "b", "c"]

    play(scenario)


def test_of_so_many_leases_it_is_known_who_got_them_the_newest(monkeypatch: pytest.MonkeyPatch) -> None:
    """For operators."""

    async def scenario(it: PopStore) -> None:
        monkeypatch.setattr(module, "CONSUMERS_REMEMBERED", 2)
        group = PopLines(it.store, it.one.clock).group(TOPIC, GROUP)
        for number in (4, 5, 6):
            group.record_lease(number, f"c{number}")
        assert dict(group.consumers) == {5: "c5", 6: "c6"}

    play(scenario)


async def test_a_member_that_leads_again_keeps_nothing_of_its_last_reign() -> None:
    """Each term of leadership has lines of its own; earlier ones get no notifications, and are freed."""
    one = OneStore()
    await one.open()
    last_reign = weakref.ref(PopLines(one.store, one.clock))
    again = PopLines(Store(one.store.engine), one.clock)
    gc.collect()
    assert last_reign() is None
    assert again.on_messages_stored in one.store.engine.committer.on_stored
    assert again.on_change_applied in one.store.engine.committer.on_applied
    await one.store.close()
