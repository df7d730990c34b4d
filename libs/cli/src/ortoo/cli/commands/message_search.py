"""`ortoo message get` and `ortoo message find`."""

import sys
from collections.abc import Sequence

from ortoo.cli.terminal.output import message_fields, print_json, print_table
from ortoo.client import FoundMessages, NotFound, StoredMessage, connect

BODY_CHARACTERS = 60


async def get(addresses: Sequence[str], topic: str, message_id: str, *, as_json: bool) -> None:
    """Show the message with an id. Errors: NotFound."""
    async with connect(addresses) as mq:
        found = await mq.admin.find_messages(topic, message_id=message_id, limit=1)
    _say_who_is_away(found)
    if not found.messages:
        raise NotFound(f"topic {topic!r} has no message {message_id!r}, or not any more", field="message_id")
    stored = found.messages[0]
    if as_json:
        print_json(message_fields(stored))
        return
    rows = [(name, value) for name, value in message_fields(stored).items() if value not in (None, [], {})]
    print_table(("field", "value"), rows)


async def find(
    addresses: Sequence[str], topic: str, key: str, *, begin_ms: int, end_ms: int, count: int, as_json: bool
) -> None:
    """Show the messages with a key."""
    async with connect(addresses) as mq:
        found = await mq.admin.find_messages(topic, key=key, begin_ms=begin_ms, end_ms=end_ms, limit=count)
    _say_who_is_away(found)
    if as_json:
        for stored in found.messages:
            print_json(message_fields(stored))
        return
    print_table(("stored at ms", "message id", "tag", "body"), map(_row, found.messages))


def _row(stored: StoredMessage) -> tuple[object, ...]:
    body = stored.message.body.decode(errors="backslashreplace")
    return stored.stored_at_ms, stored.message_id, stored.message.tag or "-", body[:BODY_CHARACTERS]


def _say_who_is_away(found: FoundMessages) -> None:
    if found.enodes_away:
        print(f"not asked, because they are away: {', '.join(found.enodes_away)}", file=sys.stderr)
