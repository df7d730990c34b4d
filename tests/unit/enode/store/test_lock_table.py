"""Queue locks as decisions: one owner, for a time, under a generation that only grows."""

import pytest

from ortoo.common.errors import Fenced
from ortoo.common.process.randomness import Randomness
from ortoo.enode.state.tables.locks import Lock
from ortoo.enode.store.lock_table import (
    DETACHED_GRACE_S,
    HEARTBEAT_TIMEOUT_S,
    LIFETIME_S,
    RESTART_GRACE_S,
    LockDenied,
    LockGranted,
    LockRequest,
    LockTable,
)

KEY = (1, "g", 0)


def wish(owner: str, session: str = "", incarnation: str = "") -> LockRequest:
    """A request for the lock."""
    return LockRequest(KEY, owner, session or f"session of {owner}", incarnation)


def take(table: LockTable, wanted: LockRequest, now_s: float = 0.0) -> LockGranted | LockDenied:
    """Request the lock."""
    return table.take(wanted, now_s, generation_above=0)


def test_one_owner_until_it_gives_back_or_is_silent() -> None:
    """E-127, E-128: the second waits until the first unlocks. A silent owner loses it only after 60 s."""
    table = LockTable((), 0.0)
    assert take(table, wish("a")) == LockGranted(1, is_new=True)
    assert take(table, wish("b")) == LockDenied("a", LIFETIME_S)
    assert table.release(KEY, "session of a") is not None
    assert take(table, wish("b")) == LockGranted(2, is_new=True)
    for minute in range(1, 10):
        assert take(table, wish("b"), minute * 59.0) == LockGranted(2, is_new=False)
        assert isinstance(take(table, wish("a"), minute * 59.0), LockDenied)
    assert isinstance(take(table, wish("a"), 9 * 59.0 + 59.9), LockDenied)
    assert take(table, wish("a"), 9 * 59.0 + 60.0) == LockGranted(3, is_new=True)


def test_a_foreign_unlock_changes_nothing() -> None:
    """E-130: only the session that holds the lock frees it."""
    table = LockTable((), 0.0)
    take(table, wish("a"))
    assert table.release(KEY, "session of b") is None
    assert isinstance(take(table, wish("b")), LockDenied)


def test_ten_thousand_races_at_the_moment_of_expiry_have_one_owner_each() -> None:
    """E-131: a request around the 60th second gets the lock only if its owner was silent for 60 seconds."""
    chance = Randomness(7)
    table, now_s = LockTable((), 0.0), 0.0
    owner, generation, renewed_s, passed_on = "", 0, -LIFETIME_S, 0
    for _ in range(10_000):
        now_s = max(now_s, renewed_s + LIFETIME_S + (chance.uniform(-1.0, 1.0) * 1e-6))
        asker = "abc"[chance.below(3)]
        answer = take(table, wish(asker), now_s)
        if isinstance(answer, LockDenied):
            assert asker != owner
            assert now_s < renewed_s + LIFETIME_S
            continue
        if asker != owner:
            assert now_s >= renewed_s + LIFETIME_S
            assert answer.generation > generation
            passed_on += 1
        owner, generation, renewed_s = asker, answer.generation, now_s
    assert passed_on > 1_000


def test_a_client_that_connects_again_takes_its_lock_over_and_fences_its_old_session() -> None:
    """The same owner with another session gets the lock at once, under a new generation."""
    table = LockTable((), 0.0)
    assert take(table, wish("a", "first")) == LockGranted(1, is_new=True)
    assert take(table, wish("a", "second")) == LockGranted(2, is_new=True)
    with pytest.raises(Fenced):
        table.check_generation(KEY, 1)
    table.check_generation(KEY, 2)


def test_bound_locks_live_as_long_as_their_snode_is_attached() -> None:
    """A live snode keeps its locks without renewals; one whose connection breaks loses them soon."""
    table = LockTable((), 0.0)
    table.attach("i", 0.0)
    take(table, wish("a", incarnation="i"))
    table.attach("i", 300.0)
    assert take(table, wish("b", incarnation="j"), 319.0) == LockDenied("a", HEARTBEAT_TIMEOUT_S - 19.0)
    table.detach("i", 319.0)
    assert take(table, wish("b", incarnation="j"), 319.5) == LockDenied("a", DETACHED_GRACE_S - 0.5)
    assert table.take_freed(319.5) == {}
    assert table.take_freed(319.0 + DETACHED_GRACE_S) == {"j": [KEY]}
    assert isinstance(take(table, wish("b", incarnation="j"), 319.0 + DETACHED_GRACE_S), LockGranted)


def test_a_snode_that_is_silent_loses_its_locks() -> None:
    """A frozen one, whose connection stays open, keeps its queues for 20 s and no longer."""
    table = LockTable((), 0.0)
    table.attach("i", 0.0)
    take(table, wish("a", incarnation="i"))
    assert isinstance(take(table, wish("b", incarnation="j"), HEARTBEAT_TIMEOUT_S - 0.1), LockDenied)
    assert take(table, wish("b", incarnation="j"), HEARTBEAT_TIMEOUT_S) == LockGranted(2, is_new=True)


def test_after_a_restart_bound_locks_wait_a_moment_for_their_snode() -> None:
    """Snodes have some seconds to attach again; locks of the others are free then."""
    locks = [(KEY, Lock(4, "a", "session of a", "i")), ((1, "g", 1), Lock(9, "a", "session of a", "i"))]
    table = LockTable(locks, 100.0)
    assert isinstance(take(table, wish("b", incarnation="j"), 100.0 + RESTART_GRACE_S - 0.1), LockDenied)
    assert take(table, wish("b", incarnation="j"), 100.0 + RESTART_GRACE_S) == LockGranted(5, is_new=True)
    table = LockTable(locks, 100.0)
    table.attach("i", 101.0)
    assert isinstance(take(table, wish("b", incarnation="j"), 100.0 + RESTART_GRACE_S), LockDenied)


def test_generations_grow_over_those_that_committed() -> None:
    """A new owner is never older than what has committed already, and an operator's order fences it off."""
    table = LockTable((), 0.0)
    assert table.take(wish("a"), 0.0, generation_above=41) == LockGranted(42, is_new=True)
    assert table.fence(KEY, 0).generation == 43
    with pytest.raises(Fenced):
        table.check_generation(KEY, 42)
    assert take(table, wish("a")) == LockGranted(43, is_new=False)


def test_a_decision_that_was_not_stored_is_undone() -> None:
    """When the disk is full the lock keeps its previous owner, unless a later decision replaced it."""
    table = LockTable((), 0.0)
    take(table, wish("a"))
    was = table.get(KEY)
    table.release(KEY, "session of a")
    table.undo(KEY, was, table.get(KEY))
    assert table.get(KEY) == was
