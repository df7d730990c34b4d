"""Creation and changes of groups."""

import dataclasses

import pytest

from ortoo.common.directory.group import Group
from ortoo.common.errors import AlreadyExists, Invalid, NotFound, Overloaded
from ortoo.namesrv.decisions.groups import GROUPS_MAX, FieldSelection, merge_request, put, require_group, with_defaults
from ortoo.namesrv.rpc.wire import group_of, selection_of
from ortoo.v1 import namesrv_pb2, topic_pb2

ASKED = Group("g", 0, True, 0, 0, 0)


def stored(asked: Group = ASKED, existing: Group | None = None, *, create_only: bool = False, count: int = 0) -> Group:
    """The group that a request creates."""
    return put(with_defaults(asked), existing, create_only=create_only, group_count=count, version=3, now_ms=7)


def test_defaults_are_those_of_the_slow_consumer_rule() -> None:
    """1,024 messages and 10 s by default."""
    assert stored() == Group("g", 3, True, 1024, 0, 7, unacknowledged_bytes_max=64 << 20, attempts_max=16)
    assert group_of(topic_pb2.Group(name="g")).slow_consumer_grace_ms == 10_000
    assert group_of(topic_pb2.Group(name="g", slow_consumer_grace_ms=0)).slow_consumer_grace_ms == 0


def test_change_keeps_the_time_of_creation_and_takes_a_version() -> None:
    """Only changes are stored; repeating a request changes nothing."""
    group = dataclasses.replace(stored(), version=1, created_at_ms=2)
    changed = stored(dataclasses.replace(ASKED, consume_enabled=False), group)
    assert changed == dataclasses.replace(group, version=3, consume_enabled=False)
    assert stored(ASKED, group) is group


def test_what_a_request_does_not_mean_stays_as_it_was() -> None:
    """{"name": "g"} disables nothing. A list of fields changes only those, and the error names a wrong one."""
    bare = namesrv_pb2.PutGroupRequest(group=topic_pb2.Group(name="g"))
    assert with_defaults(merge_request(group_of(bare.group), None, selection_of(bare))).consume_enabled
    before = dataclasses.replace(stored(), consume_enabled=False, broadcast_enabled=False, slow_consumer_grace_ms=5)
    after = with_defaults(merge_request(group_of(bare.group), before, selection_of(bare)))
    assert (after.consume_enabled, after.broadcast_enabled, after.slow_consumer_grace_ms) == (False, False, 5)
    named = namesrv_pb2.PutGroupRequest(group=topic_pb2.Group(name="g", attempts_max=3), fields=["attempts_max"])
    asked = dataclasses.replace(before, in_flight_max=7)
    once = with_defaults(merge_request(group_of(named.group), asked, selection_of(named)))
    assert dataclasses.replace(once, version=3, created_at_ms=7) == dataclasses.replace(asked, attempts_max=3)
    with pytest.raises(Invalid, match="attempts_max") as caught:
        merge_request(asked, before, FieldSelection(("attempts",)))
    assert caught.value.field == "fields"


def test_create_only_refuses_an_existing_group() -> None:
    """The error names the way to change it instead."""
    with pytest.raises(AlreadyExists, match="leave out create_only"):
        stored(ASKED, stored(), create_only=True)


@pytest.mark.parametrize(
    ("asked", "field"),
    [
        (dataclasses.replace(ASKED, name="a b"), "group.name"),
        (
            dataclasses.replace(ASKED, slow_consumer_threshold_messages=1 << 31),
            "group.slow_consumer_threshold_messages",
        ),
        (dataclasses.replace(ASKED, slow_consumer_grace_ms=1 << 31), "group.slow_consumer_grace_ms"),
        (dataclasses.replace(ASKED, name="g" * 116, lite_exclusive=True), "group.lite_exclusive"),
    ],
)
def test_wrong_group_is_invalid_by_field(asked: Group, field: str) -> None:
    """Each wrong value is refused with its field."""
    with pytest.raises(Invalid) as caught:
        with_defaults(asked)
    assert caught.value.field == field


def test_number_of_groups_is_limited_and_unknown_ones_are_named() -> None:
    """Both errors name the remedy."""
    with pytest.raises(Overloaded, match="delete"):
        stored(count=GROUPS_MAX)
    with pytest.raises(NotFound, match="PutGroup"):
        require_group("g", None)
