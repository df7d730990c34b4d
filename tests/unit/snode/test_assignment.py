"""Shares of queues."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ortoo.snode.assignment import assign, averagely
from ortoo.snode.routes import Queue


def queues(count: int, topic: str = "t") -> list[Queue]:
    """Queues 0 to `count`."""
    return [Queue(topic, "e", number) for number in range(count)]


@pytest.mark.parametrize(
    ("count", "members", "shares"),
    [
        (8, 3, [[0, 1, 2], [3, 4, 5], [6, 7]]),
        (7, 5, [[0, 1], [2, 3], [4], [5], [6]]),
        (6, 3, [[0, 1], [2, 3], [4, 5]]),
        (4, 6, [[0], [1], [2], [3], [], []]),
        (0, 2, [[], []]),
    ],
)
def test_averagely_gives_blocks_and_the_first_get_the_remainder(
    count: int, members: int, shares: list[list[int]]
) -> None:
    """The known vectors of RocketMQ's default strategy (E-120, E-121)."""
    names = [f"m{number}" for number in range(members)]
    assert [[q.queue_id for q in averagely(queues(count), names, name)] for name in names] == shares


def test_a_stranger_gets_nothing() -> None:
    """Who is not in the list has no share."""
    assert averagely(queues(4), ["a"], "b") == ()


@given(
    wanted=st.dictionaries(
        st.text("abcdef", min_size=1, max_size=3), st.sets(st.sampled_from(["t", "u", "v"])), max_size=8
    ),
    counts=st.fixed_dictionaries({topic: st.integers(0, 20) for topic in ("t", "u", "v")}),
)
def test_every_queue_has_exactly_one_owner(wanted: dict[str, set[str]], counts: dict[str, int]) -> None:
    """Whatever the members want, each queue of a wanted topic is given once, to one who wants it (E-125)."""
    given_to = assign(wanted, {topic: queues(count, topic) for topic, count in counts.items()})
    owned = [queue for share in given_to.values() for queue in share]
    assert len(owned) == len(set(owned))
    topics = {topic for topics in wanted.values() for topic in topics}
    assert set(owned) == {queue for topic in topics for queue in queues(counts[topic], topic)}
    assert all(queue.topic in wanted[member] for member, share in given_to.items() for queue in share)


def test_the_order_of_inputs_does_not_matter() -> None:
    """Two snodes that hear of members and queues in another order share out alike."""
    wanted = {"b": {"t"}, "a": {"t"}, "c": {"t"}}
    forward = assign(wanted, {"t": queues(7)})
    backward = assign(dict(reversed(wanted.items())), {"t": queues(7)[::-1]})
    assert forward == backward
