"""Plain values and messages: fields of the same name are converted automatically."""

import enum
from dataclasses import dataclass
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ortoo.common.errors import Invalid
from ortoo.common.groups.retry_policy import RetryKind, RetryPolicy
from ortoo.common.grpc.messages import read, read_request, write
from ortoo.common.records.message import Message
from ortoo.v1 import record_pb2, topic_pb2

TEXTS = st.text(st.characters(codec="utf-8"), max_size=5)
NUMBERS = st.integers(0, (1 << 32) - 1)


class Access(enum.IntEnum):
    """The numbers of Permission, without the last one."""

    UNSPECIFIED = 0
    READ_WRITE = 1
    READ_ONLY = 2


class Place(NamedTuple):
    enode: str
    read_queue_count: int
    write_queue_count: int


@dataclass(frozen=True, slots=True)
class Topic:
    name: str
    topic_id: int
    permission: Access
    placements: tuple[Place, ...]
    message_type: int = 0


@dataclass(frozen=True, slots=True)
class Group:
    name: str
    slow_consumer_grace_ms: int
    attempts_max: int | None
    broadcast_enabled: bool = True
    retry: RetryPolicy = RetryPolicy(RetryKind.LIST, listed_delays_ms=(7,))


PLACES = st.lists(st.builds(Place, TEXTS, NUMBERS, NUMBERS), max_size=3).map(tuple)


@given(st.builds(Topic, TEXTS, st.integers(0, (1 << 64) - 1), st.sampled_from(Access), PLACES, st.integers(0, 6)))
def test_what_was_written_is_read_again(topic: Topic) -> None:
    """Numbers, texts, enums and nested values survive a conversion to a message and back."""
    message = write(topic_pb2.Topic, topic)
    assert message.topic_id == topic.topic_id
    assert [place.enode for place in message.placements] == [place.enode for place in topic.placements]
    assert read_request(Topic, message) == topic
    assert read_request(Topic, topic_pb2.Topic.FromString(message.SerializeToString())) == topic


def test_an_unknown_number_of_an_enum_is_refused_with_its_path() -> None:
    """The error contains the path of the field and the valid values."""
    message = topic_pb2.Topic(name="t", permission=topic_pb2.PERMISSION_NONE)
    with pytest.raises(Invalid, match=r"topic\.permission. 4 is not a valid permission; give one of .*_READ_ONLY"):
        read_request(Topic, message, "topic")
    retry = topic_pb2.Group(retry=topic_pb2.RetryPolicy(kind=9))  # type: ignore[arg-type]
    with pytest.raises(Invalid, match=r"group\.retry\.kind: 9 is not a valid retry kind"):
        read_request(Group, retry, "group")


def test_an_enum_of_another_process_is_given_by_the_caller() -> None:
    """`read` does not convert enums, in nested values neither: the caller chooses the value for unknown numbers."""
    message = topic_pb2.Topic(name="t", permission=topic_pb2.PERMISSION_NONE)
    with pytest.raises(TypeError, match=r"permission is an enum: pass permission=known_or\(Access, message.permission"):
        read(Topic, message)
    with pytest.raises(TypeError, match=r"kind is an enum"):
        read(Group, topic_pb2.Group(retry=topic_pb2.RetryPolicy()))
    assert read(Topic, message, permission=Access.READ_ONLY).permission is Access.READ_ONLY


def test_what_a_message_leaves_out_is_the_default() -> None:
    """An absent field with presence gives the default. An argument that may be None is None, others are zero."""
    assert read_request(Group, topic_pb2.Group(name="g")) == Group("g", 0, None)
    said = topic_pb2.Group(name="g", attempts_max=3, broadcast_enabled=False, retry=topic_pb2.RetryPolicy())
    assert read_request(Group, said) == Group("g", 0, 3, broadcast_enabled=False, retry=RetryPolicy())


def test_what_is_given_is_used_as_it_is() -> None:
    """Arguments and fields that need a rule of their own come from the caller."""
    assert read_request(Group, topic_pb2.Group(name="g"), slow_consumer_grace_ms=5).slow_consumer_grace_ms == 5
    written = write(topic_pb2.Group, Group("g", 1, None), name="h", version=7)
    assert (written.name, written.version, written.attempts_max) == ("h", 7, 0)
    assert list(written.retry.listed_delays_ms) == [7]


def test_an_argument_that_nobody_gives_is_an_error() -> None:
    """A required argument that the message lacks is an error."""
    with pytest.raises(TypeError, match="topic_id"):
        read(Topic, topic_pb2.Snode(name="s"), permission=Access.READ_ONLY, placements=())


def test_classes_with_a_constructor_of_their_own() -> None:
    """Messages of applications keep their properties, and absent fields stay None."""
    message = Message(b"body", "tag", ("a", "b"), properties={"x": "y"}, priority=0)
    assert read(Message, write(record_pb2.Message, message)) == message
    assert read(Message, record_pb2.Message(body=b"x")) == Message(b"x")
