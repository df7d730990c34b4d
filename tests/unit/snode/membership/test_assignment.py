"""Assignments of queues."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from ortoo.common.groups.allocation import AllocationStrategy
from ortoo.snode.cluster.routes import Queue
from ortoo.snode.membership.assignment import assign
from ortoo.snode.membership.group_members import GroupMember, Subscription


def queues(count: int, topic: str = "t") -> list[Queue]:
    """Queues 0 to `count`."""
    return [Queue(topic, "e", number) for number in range(count)]


def wanting(wanted: dict[str, set[str]], **how: Any) -> dict[str, GroupMember]:
    """Members by client id."""
    return {
        name: GroupMember(name, name, subscriptions=tuple(map(Subscription, sorted(topics))), **how)
        for name, topics in wanted.items()
    }


@given(
    wanted=st.dictionaries(
        st.text("abcdef", min_size=1, max_size=3), st.sets(st.sampled_from(["t", "u", "v"])), max_size=8
    ),
    counts=st.fixed_dictionaries({topic: st.integers(0, 20) for topic in ("t", "u", "v")}),
)
def test_every_queue_has_exactly_one_owner(wanted: dict[str, set[str]], counts: dict[str, int]) -> None:
    """For any members, each queue of a subscribed topic is assigned once, to a subscriber (E-125)."""
    given_to = assign(wanting(wanted), {topic: queues(count, topic) for topic, count in counts.items()})
    owned = [queue for share in given_to.values() for queue in share]
    assert len(owned) == len(set(owned))
    topics = {topic for topics in wanted.values() for topic in topics}
    assert set(owned) == {queue for topic in topics for queue in queues(counts[topic], topic)}
    assert all(queue.topic in wanted[member] for member, share in given_to.items() for queue in share)


def test_the_order_of_inputs_does_not_matter() -> None:
    """Two snodes that learn of members and queues in different orders assign alike."""
    wanted = wanting({"b": {"t"}, "a": {"t"}, "c": {"t"}})
    forward = assign(wanted, {"t": queues(7)})
    backward = assign(dict(reversed(wanted.items())), {"t": queues(7)[::-1]})
    assert forward == backward


def test_who_does_not_receive_gets_nothing_and_broadcast_members_get_all() -> None:
    """Registered members without an open push session get no queues; a broadcast member does not affect the others."""
    members = {
        **wanting({"a": {"t"}, "b": {"t"}}),
        **wanting({"c": {"t"}}, active=False),
        **wanting({"d": {"t"}}, broadcast=True),
    }
    given_to = assign(members, {"t": queues(4)})
    assert {name: [q.queue_id for q in share] for name, share in given_to.items()} == {
        "a": [0, 1],
        "b": [2, 3],
        "d": [0, 1, 2, 3],
    }


def test_the_first_members_strategy_counts_and_config_takes_what_it_names() -> None:
    """E-122, E-124: members with different strategies still assign alike, by that of the first client id."""
    circle = {**wanting({"a": {"t"}}, strategy=AllocationStrategy.CIRCLE), **wanting({"b": {"t"}})}
    assert [q.queue_id for q in assign(circle, {"t": queues(4)})["a"]] == [0, 2]
    config = wanting({"a": {"t"}}, strategy=AllocationStrategy.CONFIG, configured=(queues(4)[3], Queue("t", "x", 9)))
    assert assign(config, {"t": queues(4)})["a"] == [queues(4)[3]]
