"""Deletions of topics: those that become due at once, and those that are forgotten."""

import dataclasses

import pytest

from ortoo.common.directory.topic import Permission, Placement
from ortoo.namesrv.decisions import deletions
from ortoo.namesrv.decisions.deletions import (
    TopicDeletion,
    confirmed_deletions,
    due_topics,
    expired_deletions,
    next_expiry_ms,
)
from ortoo.namesrv.decisions.routes.route_change import RouteChange
from ortoo.namesrv.decisions.routes.route_changes import Routes, StoredDirectory
from ortoo.namesrv.decisions.topics import Topic


def deleted(number: int, due_at_ms: int, *, is_due: bool = False) -> TopicDeletion:
    """A deleted topic."""
    return TopicDeletion(Topic(f"t{number}", number, 1, Permission.READ_WRITE, (), 1), 1, due_at_ms, is_due)


def test_many_ended_grace_periods_are_due_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Enodes delete the messages of some topics, and of the others with the next search."""
    monkeypatch.setattr(deletions, "DUE_AT_ONCE_MAX", 2)
    known = {number: deleted(number, 10 + number) for number in range(5)}
    found = []
    for _ in range(4):
        due = due_topics(known.values(), now_ms=13)
        known |= {one.topic_id: one for one in due}
        found.append([one.topic_id for one in due])
    assert found == [[0, 1], [2, 3], [], []]


def test_the_earliest_deletions_that_enodes_know_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Topics that can be restored stay, although their deletions are earlier. Some are forgotten at a time."""
    monkeypatch.setattr(deletions, "DELETIONS_MAX", 4)
    monkeypatch.setattr(deletions, "FORGOTTEN_AT_ONCE", 2)
    known = {number: deleted(number, 100 + number, is_due=number >= 2) for number in range(5)}
    assert expired_deletions(known, 200) == set()
    known[5] = deleted(5, 105, is_due=True)
    assert expired_deletions(known, 200) == {2, 3}
    assert expired_deletions({number: deleted(number, number) for number in range(6)}, 200) == {0, 1}


def test_the_routes_know_when_the_next_deletion_ends() -> None:
    """A change lowers the time without a search through all deletions."""
    routes = Routes(StoredDirectory(1, deletions=(deleted(1, 50),)))
    assert routes.next_expiry_ms == 50
    routes.apply(RouteChange(2, deletions=(deleted(2, 70),)))
    assert routes.next_expiry_ms == 50
    routes.apply(RouteChange(3, deletions=(deleted(3, 20),)))
    assert routes.next_expiry_ms == 20 == next_expiry_ms(routes.deleted.values())


def test_a_deletion_is_confirmed_when_all_enodes_have_applied_it() -> None:
    """An enode that has said nothing has confirmed nothing. One that was never due was told to no enode."""
    places = (Placement("e0", 1, 1), Placement("e1", 1, 1))
    found = deleted(1, 10, is_due=True)
    one = dataclasses.replace(found, topic=dataclasses.replace(found.topic, placements=places))
    assert confirmed_deletions([one], {1: 7}, {"e0": 7, "e1": 8}) == {1}
    assert confirmed_deletions([one], {1: 7}, {"e0": 7, "e1": 6}) == set()
    assert confirmed_deletions([one], {1: 7}, {"e0": 7}) == set()
    assert confirmed_deletions([one], {}, {"e0": 7, "e1": 8}) == set()
