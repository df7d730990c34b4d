"""The table of transactions, and the schedule of checks."""

from dataclasses import replace

from ortoo.enode.changes.halves import HalfEnded, HalfOpen, HalfVerdict, VerdictOrigin
from ortoo.enode.changes.kinds import StateChange, TopicDeleted, decode_changes, encode_changes
from ortoo.enode.state.tables.halves import HalfMessageTable
from ortoo.enode.transactions.checks import CheckSchedule
from tests.unit.enode.state.folding import fold

OPEN = HalfOpen(5, 7, 0, 5, 1, 1_000, 7_000, 0, False, 99, "p")
ENDED = HalfEnded(5, 7, HalfVerdict.COMMITTED, VerdictOrigin.PRODUCER, 2_000)


def test_an_end_is_final() -> None:
    """Neither another verdict nor later changes of the open transaction have an effect."""
    halves = HalfMessageTable()
    changes: list[StateChange] = [OPEN, ENDED, replace(ENDED, verdict=HalfVerdict.ROLLED_BACK), replace(OPEN, checks=1)]
    for change in changes:
        fold(halves, change)
    assert halves.open == {}
    assert halves.ended == {5: ENDED}
    assert halves.of_key(99) is None


def test_a_checkpoint_and_what_follows_give_the_same_state() -> None:
    """Open and ended transactions and keys are restored; folding a part twice changes nothing."""
    halves = HalfMessageTable()
    changes: list[StateChange] = [
        OPEN,
        replace(OPEN, number=6, key=0),
        replace(OPEN, number=7, key=3, parked=True),
        ENDED,
    ]
    for change in changes:
        fold(halves, change)
    again = HalfMessageTable()
    for change in (*decode_changes(encode_changes(list(halves.checkpoint()))), *changes[-2:]):
        fold(again, change)
    assert (again.open, again.ended) == (halves.open, halves.ended)
    assert again.of_key(3) == changes[2]
    assert [one.number for one in again.select(parked_only=True)] == [7]
    fold(again, TopicDeleted(7))
    assert again.open == {}


def test_checks_come_ever_more_slowly_and_end() -> None:
    """The interval doubles up to a limit. After the last check the transaction is parked; resuming resets it."""
    schedule = CheckSchedule(first_after_ms=6_000, interval_ms=1_000, checks_max=10)
    assert schedule.first_check_ms(50) == 6_050
    assert schedule.first_check_ms(50, 200) == 250
    half, waits = OPEN, []
    while not half.parked:
        half = schedule.after_check(half, 0)
        if not half.parked:
            waits.append(half.next_check_ms)
    assert waits == [1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 64_000, 120_000, 120_000, 120_000]
    assert schedule.after_resume(half, 9) == replace(half, parked=False, checks=0, next_check_ms=9)
