"""The output of commands has every column of a message."""

import json

from ortoo.cli.terminal.output import json_lines, message_fields
from ortoo.client import Message, Queue, StoredMessage
from ortoo.common.records.columns import MESSAGE_COLUMNS


def test_a_message_is_shown_with_every_column() -> None:
    """All columns of a message are in its JSON, except those that tell how to read the body, which is decoded."""
    message = Message(b"x", "t", ("k",), properties={"a": "1"}, born_at_ms=5, priority=2, trace_context="00-1")
    [line] = json_lines(message_fields(StoredMessage("id", Queue("orders", "e", 0), 7, 9, message)))
    shown = json.loads(line)
    assert shown.keys() >= {column.name for column in MESSAGE_COLUMNS if not column.is_about_body}
    assert (shown["message_id"], shown["tag"], shown["keys"], shown["properties"]) == ("id", "t", ["k"], {"a": "1"})
    assert (shown["born_at_ms"], shown["priority"], shown["trace_context"]) == ("5", 2, "00-1")
