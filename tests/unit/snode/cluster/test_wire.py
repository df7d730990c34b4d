"""Messages of single calls become messages of batches, field by field."""

from typing import Any

import pytest
from google.protobuf.descriptor import FieldDescriptor

from ortoo.common.grpc.messages import is_repeated, read
from ortoo.common.records.columns import NUMBERS
from ortoo.common.records.message import Message
from ortoo.common.records.message_fields import NO_RARE_FIELDS
from ortoo.snode.cluster.wire import decode_message, decode_topic
from ortoo.v1 import record_pb2, topic_pb2


def _value(field: FieldDescriptor) -> Any:
    """A value for a field of any type; 0 where 0 is a value."""
    if field.type == field.TYPE_MESSAGE:
        return {"z": "1", "a": "2"}  # the only such fields are maps of texts
    if is_repeated(field):
        return ["a", "b"]
    if field.type == field.TYPE_BYTES:
        return b"body"
    return field.name if field.type == field.TYPE_STRING else 0 if field.has_presence else 7


FULL = {field.name: _value(field) for field in record_pb2.Message.DESCRIPTOR.fields}


@pytest.mark.parametrize("name", [None, *FULL])
def test_each_field_is_read(name: str | None) -> None:
    """The result is that of the general conversion; a priority of 0 is a value, other empty fields are absent."""
    chosen = FULL if name is None else {"body": b"x", name: FULL[name]}
    sent = record_pb2.Message(**chosen)
    decoded = decode_message(sent)
    assert decoded == read(Message, sent)
    assert decoded.expire_at_ms == chosen.get("expire_at_ms")
    assert decoded.priority == chosen.get("priority")


def test_a_message_with_a_body_has_no_rare_fields() -> None:
    """Such messages are encoded on a faster path, which compares identities."""
    assert decode_message(record_pb2.Message(body=b"x")).rare is NO_RARE_FIELDS


def test_every_field_of_the_readable_message_is_a_column() -> None:
    """A field that is in the proto of a single message only would be lost."""
    assert set(FULL) <= set(NUMBERS)


def test_topics_on_the_same_enodes_share_their_placements() -> None:
    """Other topics have placements of their own."""
    places = [topic_pb2.Placement(enode=f"e{number}", read_queue_count=4, write_queue_count=4) for number in range(3)]
    first, second = [decode_topic(topic_pb2.Topic(name=name, placements=places)) for name in "ab"]
    other = decode_topic(topic_pb2.Topic(name="c", placements=places[:2]))
    assert [place.enode for place in first.placements] == ["e0", "e1", "e2"]
    assert first.placements is second.placements
    assert [place.enode for place in other.placements] == ["e0", "e1"]
