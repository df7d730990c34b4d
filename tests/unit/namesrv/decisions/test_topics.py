"""Creation and changes of topics."""

import dataclasses
from typing import Any

import pytest

from ortoo.common.directory.topic import MessageType, Permission, Placement, PublishPlace
from ortoo.common.errors import AlreadyExists, Conflict, Invalid, NotFound, OrtooError, Overloaded
from ortoo.common.groups.group_topics import NO_OWNER, OwnedTopicKind, TopicOwner
from ortoo.namesrv.decisions.placements import format_order, parse_order
from ortoo.namesrv.decisions.topics import (
    TOPICS_MAX,
    NewTopic,
    Topic,
    TopicChange,
    change_topic,
    check_count,
    create_topic,
    with_defaults,
)

ALIVE = {"b": True, "a": True}


def made(asked: NewTopic, existing: Topic | None = None, enodes: dict[str, bool] | None = None) -> Topic:
    """The topic that a request creates."""
    return create_topic(
        with_defaults(asked),
        existing,
        ALIVE if enodes is None else enodes,
        parent="",
        topic_id=9,
        version=3,
        now_ms=7,
    )


def test_defaults_are_four_queues_on_every_living_enode() -> None:
    """A request with only a name creates 4 queues, read and write, on all live enodes, sorted."""
    topic = made(NewTopic("t"), enodes={**ALIVE, "dead": False})
    assert topic == Topic("t", 9, 3, Permission.READ_WRITE, (Placement("a", 4, 4), Placement("b", 4, 4)), 7)


@pytest.mark.parametrize("name", ["%RETRY%group", "%DLQ%group", "a|b", "x" * 127])
def test_names_of_rocketmq_are_allowed(name: str) -> None:
    """System topics and the longest name are allowed."""
    assert made(NewTopic(name)).name == name


@pytest.mark.parametrize(
    ("name", "owner"),
    [
        ("%RETRY%ns%g", TopicOwner("ns%g", OwnedTopicKind.RETRY)),
        ("%DLQ%%RETRY%g", TopicOwner("%RETRY%g", OwnedTopicKind.DEAD_LETTER)),
        ("ns%%RETRY%g", NO_OWNER),
        ("orders", NO_OWNER),
    ],
)
def test_the_group_of_a_topic_is_stored(name: str, owner: TopicOwner) -> None:
    """Also if only the name of the topic names it, as in requests of earlier versions."""
    for request in (NewTopic(name), NewTopic(name, owner_group=owner.group, owner_kind=owner.kind)):
        topic = made(request)
        assert TopicOwner(topic.owner_group, topic.owner_kind) == owner


OWNED = OwnedTopicKind.RETRY
WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "no topic of the group": ({"owner_group": "g", "owner_kind": OWNED}, "owner_group"),
    "another group's topic": ({"name": "%RETRY%h", "owner_group": "g", "owner_kind": OWNED}, "owner_group"),
    "the group's other topic": ({"name": "%DLQ%g", "owner_group": "g", "owner_kind": OWNED}, "owner_group"),
    "a group without a kind": ({"name": "%DLQ%g", "owner_group": "g"}, "owner_group"),
    "no group": ({"name": "%DLQ%"}, "owner_group"),
    "an over-long group": ({"name": "%DLQ%" + "g" * 121}, "owner_group"),
    "a parent with the name of a group's topic": (
        {"name": "%RETRY%g", "message_type": MessageType.LITE},
        "message_type",
    ),
    "a group's topic that cannot be read": ({"name": "%RETRY%g", "permission": Permission.WRITE_ONLY}, "permission"),
    "empty name": ({"name": ""}, "name"),
    "illegal name": ({"name": "a b"}, "name"),
    "over-long name": ({"name": "x" * 128}, "name"),
    "too many queues": ({"read_queue_count": 1025}, "read_queue_count"),
    "negative queues": ({"read_queue_count": -1}, "read_queue_count"),
    "unreadable queues": ({"read_queue_count": 2, "write_queue_count": 3}, "write_queue_count"),
    "an enode twice": ({"enodes": ("a", "a")}, "enodes"),
    "illegal enode": ({"enodes": ("a/b",)}, "enodes"),
}


@pytest.mark.parametrize("what", WRONG)
def test_wrong_wish_is_invalid_by_field(what: str) -> None:
    """Each wrong value is refused with its field and the expected values."""
    fields, field = WRONG[what]
    with pytest.raises(Invalid) as caught:
        with_defaults(NewTopic(**{"name": "t", **fields}))
    assert caught.value.field == field
    assert "; " in caught.value.message


@pytest.mark.parametrize(
    ("asked", "enodes", "kind", "words"),
    [
        (NewTopic("t"), {}, Conflict, "no enode is alive. Start an enode"),
        (NewTopic("t"), {"a": False}, Conflict, "no enode is alive. Start an enode"),
        (NewTopic("t", enodes=("c",)), ALIVE, NotFound, "Live enodes: a, b"),
        (NewTopic("t", enodes=("a",)), {"a": False, "b": True}, Conflict, "is not alive; start it"),
    ],
)
def test_topic_needs_enodes_that_live(
    asked: NewTopic, enodes: dict[str, bool], kind: type[OrtooError], words: str
) -> None:
    """If a topic cannot be placed, the error names the live enodes and the remedy."""
    with pytest.raises(kind, match=words):
        made(asked, enodes=enodes)


def test_equal_wish_gives_the_existing_topic() -> None:
    """A repeated creation returns the same topic, also when enodes have registered or left since."""
    topic = made(NewTopic("t", 8))
    assert made(NewTopic("t", 8, 8, Permission.READ_WRITE), topic) is topic
    assert made(NewTopic("t", 8, enodes=("b", "a")), topic, enodes={}) is topic
    assert made(NewTopic("t", 8), topic, enodes={"c": True}) is topic


@pytest.mark.parametrize(
    ("asked", "field"),
    [
        (NewTopic("t", 9), "read_queue_count"),
        (NewTopic("t", 8, 7), "write_queue_count"),
        (NewTopic("t", 8, permission=Permission.READ_ONLY), "permission"),
        (NewTopic("t", 8, enodes=("a",)), "enodes"),
    ],
)
def test_other_wish_for_an_existing_name_is_refused(asked: NewTopic, field: str) -> None:
    """Another topic with the same name is AlreadyExists, and the error names the difference."""
    with pytest.raises(AlreadyExists, match="UpdateTopic") as caught:
        made(asked, made(NewTopic("t", 8)))
    assert caught.value.field == field


def test_number_of_topics_is_limited() -> None:
    """The limit refuses new topics, and the error names the remedy."""
    with pytest.raises(Overloaded, match="delete"):
        check_count(TOPICS_MAX + 1)


def test_change_adds_queues_and_enodes() -> None:
    """All enodes get more queues, an added enode gets as many, and the version is new."""
    topic = made(NewTopic("t", 4, enodes=("a",)))
    changed = change_topic(TopicChange("t", 8, add_enodes=("a", "b")), topic, ALIVE, version=5)
    assert changed.placements == (Placement("a", 8, 4), Placement("b", 8, 4))
    assert (changed.version, changed.topic_id) == (5, topic.topic_id)


def test_change_to_what_is_there_changes_nothing() -> None:
    """The same topic is returned, with its version."""
    topic = made(NewTopic("t", 4))
    assert change_topic(TopicChange("t", 4, permission=Permission.READ_WRITE), topic, ALIVE, version=5) is topic


def test_a_topic_of_a_group_stays_readable_and_writable() -> None:
    """One from an earlier version may have another permission; it keeps this one, or is opened."""
    topic = made(NewTopic("%RETRY%g"))
    with pytest.raises(Invalid, match=r"belongs to group g.* give READ_WRITE") as caught:
        change_topic(TopicChange("%RETRY%g", permission=Permission.NONE), topic, ALIVE, version=5)
    assert caught.value.field == "permission"
    former = dataclasses.replace(topic, permission=Permission.READ_ONLY)
    kept = change_topic(TopicChange("%RETRY%g", 8, permission=Permission.READ_ONLY), former, ALIVE, version=5)
    assert (kept.permission, kept.read_queue_count) == (Permission.READ_ONLY, 8)
    opened = change_topic(TopicChange("%RETRY%g", permission=Permission.READ_WRITE), former, ALIVE, version=5)
    assert opened.permission is Permission.READ_WRITE


def test_write_queues_may_shrink_and_read_queues_may_not() -> None:
    """Write queues can be drained; read queues hold messages."""
    topic = made(NewTopic("t", 4))
    assert change_topic(TopicChange("t", 0, 2), topic, ALIVE, version=5).write_queue_count == 2
    with pytest.raises(Invalid, match="Instead lower write_queue_count") as caught:
        change_topic(TopicChange("t", 3), topic, ALIVE, version=5)
    assert caught.value.field == "read_queue_count"


def test_change_of_an_unknown_topic_or_enode_is_not_found() -> None:
    """The error names both."""
    with pytest.raises(NotFound, match="create it"):
        change_topic(TopicChange("t"), None, ALIVE, version=1)
    with pytest.raises(NotFound) as caught:
        change_topic(TopicChange("t", add_enodes=("c",)), made(NewTopic("t")), ALIVE, version=5)
    assert caught.value.field == "add_enodes"


def test_the_order_for_producers_is_checked_against_the_queues_after_the_change() -> None:
    """E-027: queues added by the same change count, and an order is kept when other settings change."""
    topic = made(NewTopic("t", 2))
    order = (PublishPlace("b", 4), PublishPlace("a", 1))
    with pytest.raises(Invalid, match="1 to 2"):
        change_topic(TopicChange("t", publish_order=order), topic, ALIVE, version=4)
    changed = change_topic(TopicChange("t", 4, 4, publish_order=order), topic, ALIVE, version=4)
    assert changed.publish_order == order
    assert (
        change_topic(TopicChange("t", permission=Permission.READ_ONLY), changed, ALIVE, version=5).publish_order
        == order
    )
    assert change_topic(TopicChange("t", publish_order=()), changed, ALIVE, version=5).publish_order == ()
    assert parse_order(format_order(order)) == order


def test_values_cannot_be_changed_in_place() -> None:
    """A topic is a value: watchers and the catalog may share it."""
    with pytest.raises(dataclasses.FrozenInstanceError):
        made(NewTopic("t")).version = 4  # type: ignore[misc]
