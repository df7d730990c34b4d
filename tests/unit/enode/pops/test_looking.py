"""Operators' requests about popping groups: peeks, delivery modes, and invalid requests."""

from dataclasses import replace
from typing import Any

import pytest

from ortoo.common.errors import Conflict, NotFound
from ortoo.common.groups.pop import Finish, LeasePart, Popped, PopRequest, Renew
from ortoo.enode.changes.groups import GroupMode
from tests.contract.one_store import TOPIC
from tests.contract.pop_store import GROUP, INVISIBLE_MS, PopStore, attempts, parts, play, texts

LOOK = PopRequest(TOPIC, GROUP, (0, 1), 10, INVISIBLE_MS, 1 << 20, 0)


def offsets(popped: Popped) -> list[tuple[int, tuple[int, ...]]]:
    """(queue, offsets) of each batch."""
    return [(one.queue_id, one.offsets) for one in popped.batches]


def test_looking_shows_what_a_group_is_not_done_with_and_changes_nothing() -> None:
    """Leased messages included, with their attempts; batch by batch, by queue."""

    async def scenario(it: PopStore) -> None:
        await it.send("a", "b", "c")
        await it.send("d", "e", queue_id=1)
        popped = await it.pop(1)
        await it.ack(popped)
        again = await it.pop(1)
        seen = await it.leasing.peek(LOOK)
        left = {text for text in "abcde" if text not in texts(popped)}
        assert set(texts(seen)) == left
        assert sum(attempts(seen)) == 1
        assert sorted({one.queue_id for one in seen.batches}) == [0, 1]
        assert all(one.number == 0 for one in seen.batches)
        assert (seen.more, seen.skipped_messages, seen.needs_dead_letter_topic) == (False, 0, False)
        assert await it.ack(again) == 0
        assert sorted(texts(await it.pop())) == sorted(left - set(texts(again)))

    play(scenario)


def test_one_looks_at_so_many_messages_and_bytes_and_passes_over_what_was_seen_before() -> None:
    """At least one batch is returned, and whether there are more."""

    async def scenario(it: PopStore) -> None:
        await it.send("a", "b", "c")
        await it.send("d")
        await it.send("e", "f", queue_id=1)
        look = it.leasing.peek
        assert offsets(await look(replace(LOOK, messages_max=2))) == [(0, (0, 1))]
        assert offsets(await look(replace(LOOK, messages_max=4))) == [(0, (0, 1, 2)), (0, (3,))]
        assert offsets(await look(replace(LOOK, messages_max=5))) == [(0, (0, 1, 2)), (0, (3,)), (1, (0,))]
        skipped = await look(replace(LOOK, skip=2, messages_max=3))
        assert (offsets(skipped), skipped.skipped_messages) == ([(0, (2,)), (0, (3,)), (1, (0,))], 2)
        further = await look(replace(LOOK, skip=5))
        assert (offsets(further), further.skipped_messages) == ([(1, (1,))], 5)
        beyond = await look(replace(LOOK, skip=9))
        assert (offsets(beyond), beyond.skipped_messages) == ([], 6)
        one = await look(replace(LOOK, bytes_max=1))
        assert (offsets(one), one.more) == ([(0, (0, 1, 2))], True)
        sizes = [len(batch.batch.records) for batch in (await look(LOOK)).batches]
        two = await look(replace(LOOK, bytes_max=sum(sizes[:2])))
        assert (offsets(two), two.more) == ([(0, (0, 1, 2)), (0, (3,))], True)
        assert not (await look(replace(LOOK, bytes_max=sum(sizes)))).more

    play(scenario)


def test_without_a_group_what_is_oldest_is_shown() -> None:
    """Independently of the progress of groups; an unknown topic is refused."""

    async def scenario(it: PopStore) -> None:
        await it.send("a", "b")
        await it.ack(await it.pop())
        assert texts(await it.leasing.peek(LOOK)) == []
        assert texts(await it.leasing.peek(replace(LOOK, group=""))) == ["a", "b"]
        assert texts(await it.leasing.peek(replace(LOOK, group="another"))) == ["a", "b"]
        with pytest.raises(NotFound):
            await it.leasing.peek(replace(LOOK, topic_id=99))

    play(scenario)


def test_operators_see_the_deliveries_of_messages() -> None:
    """The unfinished ones, or a range."""

    async def scenario(it: PopStore) -> None:
        await it.send("a", "b", "c")
        popped = await it.pop(2)
        found = it.leasing.describe(TOPIC, GROUP, 0, -1, -1, 10)
        assert found == it.leasing.describe(TOPIC, GROUP, popped.batches[0].queue_id, -1, -1, 10)
        assert found != it.leasing.describe(TOPIC, GROUP, 1, -1, -1, 10)
        assert found != it.leasing.describe(TOPIC, GROUP, 0, 1, 2, 10)
        assert found != it.leasing.describe(TOPIC, "another", 0, -1, -1, 10)

    play(scenario)


def test_what_cannot_be_right_is_answered_by_itself() -> None:
    """Unknown queues and messages fail alone; other parts are applied. An unknown topic fails the whole request."""

    async def scenario(it: PopStore) -> None:
        await it.send("a")
        popped = await it.pop()
        number = popped.batches[0].number
        wrong = [LeasePart(3, number, ((4, 1),)), LeasePart(0, number, ((-1, 1),)), LeasePart(9, 8, ())]
        answers = await it.leasing.settle(TOPIC, GROUP, [*wrong, *parts(popped)], Finish())
        assert [(one.queue_id, one.offset, one.number) for one in answers] == [
            (3, 4, number),
            (0, -1, number),
            (9, 0, 8),
        ]
        assert all(isinstance(one.error, NotFound) and one.error.field == "queue_id" for one in answers)
        assert "there is no such lease" in str(answers[0].error)
        assert it.store.offsets.of(TOPIC, GROUP)[0] == 1
        assert [one.error is None for one in await it.leasing.settle(TOPIC, GROUP, wrong, Finish())] == [False] * 3
        with pytest.raises(NotFound):
            await it.leasing.settle(99, GROUP, parts(popped), Finish())

    play(scenario)


def test_who_wants_it_in_time_is_told_of_each_message_whose_lease_is_over() -> None:
    """Other messages are processed; finished ones can be finished again, but not renewed."""

    async def scenario(it: PopStore) -> None:
        await it.send("a", "b", "c", "d")
        popped = await it.pop()
        one = replace(parts(popped)[0], ranges=((0, 4),), unexpired_only=True)
        await it.leasing.settle(TOPIC, GROUP, [replace(one, ranges=((1, 1),))], Finish())
        await it.one.clock.sleep(INVISIBLE_MS / 1000 - 1)
        renewed = await it.leasing.settle(TOPIC, GROUP, [replace(one, ranges=((0, 3),))], Renew(INVISIBLE_MS))
        assert [(stale.queue_id, stale.offset, stale.number, stale.error) for stale in renewed] == [
            (0, 1, one.number, None)
        ]
        await it.one.clock.sleep(1)
        assert [stale.offset for stale in await it.leasing.settle(TOPIC, GROUP, [one], Finish())] == [3]
        assert it.store.offsets.of(TOPIC, GROUP)[0] == 3
        loose = replace(one, is_exact=False)
        assert await it.leasing.settle(TOPIC, GROUP, [loose], Finish()) == []
        assert texts(await it.pop()) == ["d"]

    play(scenario)


def test_a_mode_is_changed_only_while_nobody_has_messages_or_it_is_forced() -> None:
    """The refusal counts leased messages and queues; the same mode again is no change."""

    async def scenario(it: PopStore) -> None:
        change: Any = it.leasing.change_mode
        await it.send("a", "b")
        await it.pop(1)
        with pytest.raises(Conflict) as refused:
            await change(TOPIC, GROUP, GroupMode.OFFSETS, force=False)
        assert (refused.value.field, refused.value.message) == (
            "force",
            "consumers of group billing have 1 messages and 0 queues of orders: stop them first, or use force to "
            "deliver these messages again",
        )
        assert await change(TOPIC, GROUP, GroupMode.POP, force=False) is GroupMode.POP
        assert await change(TOPIC, GROUP, GroupMode.POP_IN_ORDER, force=True) is GroupMode.POP
        assert it.store.modes.of(TOPIC, GROUP) is GroupMode.POP_IN_ORDER
        with pytest.raises(Conflict):
            await it.pop()
        assert sorted(texts(await it.pop(in_order=True, invisible_ms=50))) in (["a"], ["b"], ["a", "b"])
        await it.one.clock.sleep(1.0)
        assert await change(TOPIC, "another", GroupMode.POP, force=False) is GroupMode.UNDECIDED
        with pytest.raises(NotFound):
            await change(99, GROUP, GroupMode.POP, force=False)

    play(scenario)
