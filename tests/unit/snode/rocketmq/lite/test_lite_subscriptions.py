"""Subscriptions to lite topics, decided without a client."""

import pytest

from apache.rocketmq.v2.definition_pb2 import Code
from ortoo.snode.rocketmq.clients.settings_reply import LITE_TOPICS_MAX
from ortoo.snode.rocketmq.lite.subscriptions import EXPIRY_S, LiteSubscriptions
from ortoo.snode.rocketmq.protocol.codes import GrpcProxyError
from ortoo.snode.rocketmq.protocol.names import lite_topic_of, stored_topic


def test_a_change_is_told_and_no_change_is_not() -> None:
    """Waiting pops are notified of added, removed and dropped lite topics."""
    all_of_them = LiteSubscriptions()
    one = all_of_them.get_or_create("c", "g", "t", 0.0)
    before = one.changed
    all_of_them.set_lite_topics(one, frozenset("ab"), 1.0)
    assert (before.is_set(), one.lite_topics) == (True, frozenset("ab"))
    before = one.changed
    all_of_them.set_lite_topics(one, one.lite_topics | {"a"}, 2.0)
    assert (before.is_set(), one.updated_at_s) == (False, 2.0)
    all_of_them.set_lite_topics(one, one.lite_topics - {"a"}, 3.0)
    assert one.lite_topics == frozenset("b")
    before = one.changed
    all_of_them.remove("c")
    assert (before.is_set(), one.lite_topics) == (True, frozenset())


def test_a_group_has_one_parent_as_long_as_it_has_members() -> None:
    """Another parent is refused until the last member has left."""
    all_of_them = LiteSubscriptions()
    all_of_them.get_or_create("c", "g", "t", 0.0)
    all_of_them.check_parent("g", "t")
    with pytest.raises(GrpcProxyError) as refused:
        all_of_them.check_parent("g", "other")
    assert refused.value.code == Code.ILLEGAL_TOPIC
    all_of_them.remove("c")
    all_of_them.check_parent("g", "other")


def test_too_many_change_nothing() -> None:
    """The subscription stays."""
    all_of_them = LiteSubscriptions()
    one = all_of_them.get_or_create("c", "g", "t", 0.0)
    all_of_them.set_lite_topics(one, frozenset("a"), 0.0)
    with pytest.raises(GrpcProxyError) as refused:
        all_of_them.set_lite_topics(one, one.lite_topics.union(map(str, range(LITE_TOPICS_MAX))), 0.0)
    assert refused.value.code == Code.LITE_SUBSCRIPTION_QUOTA_EXCEEDED
    assert one.lite_topics == frozenset("a")
    with pytest.raises(GrpcProxyError):
        all_of_them.check_quota("c", list(map(str, range(LITE_TOPICS_MAX))))
    all_of_them.check_quota("other", list(map(str, range(LITE_TOPICS_MAX))))


def test_what_another_client_takes_is_lost_and_told() -> None:
    """Only for clients of the same group; they keep the others, and dropped ones are released."""
    told: list[tuple[str, str]] = []
    released: list[tuple[object, ...]] = []
    all_of_them = LiteSubscriptions(lambda *one: told.append(one), lambda *one: released.append(one))
    first, second = all_of_them.get_or_create("c1", "g", "t", 0.0), all_of_them.get_or_create("c2", "g", "t", 0.0)
    elsewhere = all_of_them.get_or_create("c3", "h", "t", 0.0)
    for one in (first, elsewhere):
        all_of_them.set_lite_topics(one, frozenset("ab"), 0.0)
    all_of_them.set_lite_topics(second, frozenset("a"), 0.0)
    before = first.changed
    all_of_them.revoke_from_others("c2", "g", ["a"])
    assert [sorted(one.lite_topics) for one in (first, second, elsewhere)] == [["b"], ["a"], ["a", "b"]]
    assert (before.is_set(), told, released) == (True, [("c1", "a")], [])
    all_of_them.remove("c1")
    assert released == [("c1", "g", "t", frozenset("b"))]


def test_what_is_not_said_again_is_forgotten() -> None:
    """Three minutes of silence end a subscription."""
    all_of_them = LiteSubscriptions()
    one = all_of_them.get_or_create("c", "g", "t", 0.0)
    all_of_them.set_lite_topics(one, frozenset("a"), 0.0)
    all_of_them.remove_expired(EXPIRY_S)
    assert one.lite_topics == frozenset("a")
    all_of_them.remove_expired(EXPIRY_S + 1)
    assert one.lite_topics == frozenset()


def test_names_of_parent_and_lite_topic_fit_into_one() -> None:
    """The stored name returns the short one; the error for one that is too long has the limit."""
    assert lite_topic_of(stored_topic("par-ent|x", "a_b-1")) == "a_b-1"
    with pytest.raises(GrpcProxyError, match="at most 20 fit"):
        stored_topic("p" * 100, "x" * 21)
