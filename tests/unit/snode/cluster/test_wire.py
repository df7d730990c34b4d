"""Messages of single calls become messages of batches, field by field."""

import pytest

from ortoo.common.grpc.messages import read
from ortoo.common.records.columns import NUMBERS
from ortoo.common.records.message import Message
from ortoo.common.records.message_fields import NO_RARE_FIELDS
from ortoo.snode.cluster.wire import decode_message
from ortoo.v1 import record_pb2

FULL = {
    "body": b"body",
    "tag": "tag",
    "keys": ["a", "b"],
    "message_group": "group",
    "properties": {"z": "1", "a": "2"},
    "message_id": "id",
    "born_at_ms": 1,
    "deliver_at_ms": 2,
    "expire_at_ms": 3,
    "priority": 0,
}


@pytest.mark.parametrize("name", [None, *FULL])
def test_each_field_is_read(name: str | None) -> None:
    """The result is that of the general conversion; a priority of 0 is a value, other empty fields are absent."""
    chosen = FULL if name is None else {"body": b"x", name: FULL[name]}
    sent = record_pb2.Message(**chosen)  # type: ignore[arg-type]
    decoded = decode_message(sent)
    assert decoded == read(Message, sent)
    assert decoded.expire_at_ms == chosen.get("expire_at_ms")
    assert decoded.priority == chosen.get("priority")


def test_a_message_with_a_body_has_no_rare_fields() -> None:
    """Such messages are encoded on a faster path, which compares identities."""
    assert decode_message(record_pb2.Message(body=b"x")).rare is NO_RARE_FIELDS


def test_every_field_of_the_readable_message_is_a_column() -> None:
    """A field that is in the proto of a single message only would be lost."""
    fields = {field.name for field in record_pb2.Message.DESCRIPTOR.fields}
    assert fields == set(FULL)
    assert fields <= set(NUMBERS)
