"""Snodes that can ask producers take turns."""

from ortoo.common.records.batch import Message, encode
from ortoo.enode.changes.halves import HalfOpen
from ortoo.enode.transactions.checks import CheckListeners, DueCheck, RequestCheck

BATCH = encode([Message(b"x")], now_ms=1)


Asked = list[tuple[str, str]]
"""(group, snode that asked)."""


def watcher(name: str, asked: Asked) -> RequestCheck:
    """A snode that records its checks."""

    def ask(it: DueCheck) -> None:
        asked.append((it.half.producer_group, name))

    return ask


def check(group: str) -> DueCheck:
    """One transaction of a group."""
    return DueCheck(HalfOpen(1, 7, 0, 1, 1, 5, 6, 1, False, 0, group), BATCH)


def test_the_watchers_of_each_group_take_turns_whatever_others_are_asked() -> None:
    """G7: checks of each group alternate between two snodes, so that a silent producer costs every second turn."""
    watchers, asked = CheckListeners(), Asked()
    watchers.add(set("pq"), watcher("one", asked))
    watchers.add(set("pqr"), watcher("two", asked))
    for group in "pqpqpqrr":
        assert watchers.request_check(check(group))
    assert [name for group, name in asked if group == "p"] == ["one", "two", "one"]
    assert [name for group, name in asked if group == "q"] == ["one", "two", "one"]
    assert [name for group, name in asked if group == "r"] == ["two", "two"]


def test_a_watcher_that_went_is_asked_no_more() -> None:
    """After the last watcher of a group is removed, no check can be made."""
    watchers, asked = CheckListeners(), Asked()
    one, two = watcher("one", asked), watcher("two", asked)
    assert not watchers.request_check(check("p"))
    watchers.add({"p"}, one)
    watchers.add({"p"}, two)
    watchers.remove({"p"}, one)
    assert watchers.request_check(check("p"))
    assert watchers.has_listener("p")
    watchers.remove({"p"}, two)
    assert not watchers.has_listener("p")
    assert not watchers.request_check(check("p"))
    assert asked == [("p", "two")]
