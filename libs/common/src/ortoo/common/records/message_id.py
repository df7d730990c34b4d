"""The id of a message whose producer chose no id: all processes derive it from the message's place in the log."""

import re
from typing import NamedTuple

_TEXT = re.compile(r"([0-9a-f]{16})-(.+)-(\d{1,10})-(\d{1,19})")


class MessageAddress(NamedTuple):
    """The place of a message in the log."""

    topic_id: int
    enode: str
    queue_id: int
    offset: int


def message_id_text(topic_id: int, enode: str, queue_id: int, offset: int) -> str:
    """The id of the message at `offset` of a queue, such as "00c0ffee00c0ffee-enode-0-3-42"."""
    return f"{topic_id:016x}-{enode}-{queue_id}-{offset}"


def message_address(message_id: str) -> MessageAddress | None:
    """The place of the message with this id; None for an id of another form, which a producer chose."""
    match = _TEXT.fullmatch(message_id)
    return MessageAddress(int(match[1], 16), match[2], int(match[3]), int(match[4])) if match else None
