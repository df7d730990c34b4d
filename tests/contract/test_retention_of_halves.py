"""Retention with open transactions: they keep their state, and do not block the deletion of others."""

import asyncio
from dataclasses import replace

import pytest

from ortoo.common.errors import Conflict, NotFound, OrtooError, Overloaded
from ortoo.common.process.background import Background
from ortoo.common.records.batch import Message, encode
from ortoo.enode.changes.halves import HalfOpen, HalfVerdict, VerdictOrigin
from ortoo.enode.disk.atomic_files import read_file
from ortoo.enode.transactions.checks import DueCheck
from ortoo.enode.transactions.coordinator import STALE_CHECKS_MAX
from ortoo.verification.store.workload import FOLDER
from tests.contract.deferred_store import DeferredStore
from tests.contract.one_store import TOPIC
from tests.contract.test_retention_of_delayed import RETENTION_BYTES, SMALL, delayed_bodies, fill

BELOW_ALL = 1 << 40


async def begun(one: DeferredStore, count: int, **asked: int) -> list[HalfOpen]:
    """Open transactions; each body is the transaction's number."""
    return [
        await one.transactions.begin(TOPIC, 0, encode([Message(b"%d" % row)], now_ms=1), producer_group="p", **asked)
        for row in range(count)
    ]


def same(one: DeferredStore, half: HalfOpen) -> tuple[int, bool]:
    """The number of checks, and whether it is parked."""
    now = one.store.halves.open[half.number]
    return now.checks, now.parked


async def test_what_is_checked_parked_and_resumed_while_others_are_moved_stays_so() -> None:
    """G7: without a remedy a transaction parked during the rewrite of its segment was never checked again."""
    one = DeferredStore()
    await one.open()
    halves = await begun(one, 40)
    asked: list[DueCheck] = []
    one.transactions.listeners.add({"p"}, asked.append)
    await one.clock.pass_time(4.5)
    assert {same(one, half) for half in halves} == {(3, False)}
    async with Background("test") as background:
        for _ in range(3):  # the last check, a park, and nothing
            moving = background.spawn("rescue", one.transactions.rescue(BELOW_ALL))
            await one.clock.pass_time(4)
            await moving
    assert {same(one, half) for half in halves} == {(3, True)}
    async with Background("test") as background:
        moving = background.spawn("rescue", one.transactions.rescue(BELOW_ALL))
        await asyncio.gather(*(one.transactions.resume(TOPIC, half.number) for half in halves))
        await moving
    await one.clock.pass_time(0.1)
    assert len(asked) == 4 * len(halves)
    assert {same(one, half) for half in halves} == {(1, False)}
    await one.crash(1)
    assert {same(one, half) for half in halves} == {(1, False)}
    await one.halt()
    await one.store.close()


async def test_transactions_that_are_moved_share_flushes() -> None:
    """Thousands of open transactions delay the deletion of a segment for seconds, not by one flush each."""
    one = DeferredStore()
    await one.open()
    await begun(one, 40)
    before = one.store.engine.appender.flushes
    await one.transactions.rescue(BELOW_ALL)
    assert one.store.engine.appender.flushes - before <= 40 // 4
    assert min(half.place for half in one.store.halves.open.values()) == 40
    await one.halt()
    await one.store.close()


async def test_a_verdict_beside_a_move_a_check_and_another_verdict_is_the_only_one() -> None:
    """Under repeated concurrent requests the first decision stays, and committed messages come once (G7)."""
    one = DeferredStore()
    await one.open()
    halves = await begun(one, 30)
    one.transactions.listeners.add({"p"}, lambda check: None)
    one.clock.advance(1)

    async def said(half: HalfOpen, verdict: HalfVerdict) -> HalfVerdict | None:
        try:
            await one.transactions.end(TOPIC, half.number, verdict, VerdictOrigin.PRODUCER)
        except Conflict:
            return None
        return verdict

    async with Background("test") as background:
        moving = background.spawn("rescue", one.transactions.rescue(BELOW_ALL))
        checking = [background.spawn("check", one.transactions._check(half.number)) for half in halves]
        ends = await asyncio.gather(
            *(said(half, verdict) for half in halves for verdict in HalfVerdict for _ in range(2))
        )
        await asyncio.gather(moving, *checking)
    told = [tuple(ends[at : at + 4]) for at in range(0, len(ends), 4)]
    assert {len({one for one in four if one is not None}) for four in told} == {1}
    committed = sorted(b"%d" % row for row, four in enumerate(told) if HalfVerdict.COMMITTED in four)
    assert sorted(body for body, _ in await one.visible()) == committed
    assert one.store.halves.open == {}
    await one.halt()
    await one.store.close()


async def test_what_has_ended_is_not_kept_until_its_check_would_have_come() -> None:
    """A producer that requests late checks needs no memory for its ended transactions."""
    one = DeferredStore()
    await one.open()
    for half in await begun(one, STALE_CHECKS_MAX // 40, check_after_ms=7 * 86_400_000):
        await one.transactions.end(TOPIC, half.number, HalfVerdict.ROLLED_BACK, VerdictOrigin.PRODUCER)
    due = one.transactions._due
    due += [(due[0][0], number) for number in range(STALE_CHECKS_MAX)]
    await begun(one, 1)
    assert len(one.transactions._due) == 1
    await one.halt()
    await one.store.close()


async def test_a_topic_that_goes_takes_its_transactions_with_it_and_none_comes_back() -> None:
    """G7, G11: a commit reports that no message is visible, a check stores nothing, and retention continues."""
    one = DeferredStore()
    await one.open()
    halves = await begun(one, 3)
    one.clock.advance(1)
    async with Background("test") as background:
        going = background.spawn("delete", one.store.delete_topics([TOPIC]))
        checks = [background.spawn("check", one.transactions._check(half.number)) for half in halves]
        with pytest.raises(NotFound):
            await one.transactions.end(TOPIC, halves[0].number, HalfVerdict.COMMITTED, VerdictOrigin.PRODUCER)
        await asyncio.gather(going, *checks)
    assert one.store.halves.open == {}
    assert await one.transactions.rescue(BELOW_ALL) == 0
    await one.halt()
    await one.store.close()


async def test_a_transaction_that_outlived_its_topic_is_checked_no_more() -> None:
    """A former version rewrote it after the deletion of its topic; an operator can still roll it back."""
    one = DeferredStore()
    await one.open()
    [half] = await begun(one, 1)
    await one.store.change(replace(half, topic_id=TOPIC + 1_000))
    await one.crash(1)
    await one.clock.pass_time(10)
    assert one.transactions._due == []
    await one.transactions.end(TOPIC + 1_000, half.number, HalfVerdict.ROLLED_BACK, VerdictOrigin.OPERATOR)
    assert one.store.halves.open == {}
    await one.halt()
    await one.store.close()


async def test_a_commit_beside_a_deletion_that_was_refused_can_be_said_again() -> None:
    """G7: messages that are not visible were not committed."""
    one = DeferredStore()
    await one.open()
    [half] = await begun(one, 1)
    one.disk.full_after(0)
    one.store._deleting_topic_ids.add(TOPIC)  # as while disk space is reserved
    with pytest.raises(OrtooError) as refused:
        await one.transactions.end(TOPIC, half.number, HalfVerdict.COMMITTED, VerdictOrigin.PRODUCER)
    assert not isinstance(refused.value, Overloaded)
    one.store._deleting_topic_ids.clear()
    one.disk.heal()
    await one.transactions.end(TOPIC, half.number, HalfVerdict.COMMITTED, VerdictOrigin.PRODUCER)
    assert [body for body, _ in await one.visible()] == [b"0"]
    await one.halt()
    await one.store.close()


async def test_a_transaction_whose_bytes_are_damaged_holds_no_segment() -> None:
    """It stays open, is reported as lost, and can be rolled back; the others are rewritten as usual (G12)."""
    one = DeferredStore(settings=replace(SMALL, recent_bytes=0))
    await one.open()
    halves = [
        await one.transactions.begin(TOPIC, 0, encode([Message(body)], now_ms=1), producer_group="p")
        for body in (b"damaged-one", b"whole-one")
    ]
    await fill(one, 3 * RETENTION_BYTES)
    for name in one.disk.list(FOLDER):
        if (position := (read_file(one.disk, FOLDER / name) or b"").find(b"damaged-one")) >= 0:
            one.disk.flip_bit(FOLDER / name, position)
    keeping = one.store.engine.housekeeping
    await keeping.apply_retention()
    assert keeping.deleted_segments
    with pytest.raises(OrtooError):
        await one.transactions.end(TOPIC, halves[0].number, HalfVerdict.COMMITTED, VerdictOrigin.PRODUCER)
    await one.transactions.end(TOPIC, halves[0].number, HalfVerdict.ROLLED_BACK, VerdictOrigin.OPERATOR)
    await one.transactions.end(TOPIC, halves[1].number, HalfVerdict.COMMITTED, VerdictOrigin.PRODUCER)
    assert await delayed_bodies(one, [b"damaged-one", b"whole-one"]) == [b"whole-one"]
    await one.halt()
    await one.store.close()
