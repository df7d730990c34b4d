"""The id of a message whose producer chose none: made of where it lies, so that everybody makes the same one."""

import re
from typing import NamedTuple

_TEXT = re.compile(r"([0-9a-f]{16})-(.+)-(\d{1,10})-(\d{1,19})")


class MessageAddress(NamedTuple):
    """Where a message lies."""

    topic_id: int
    enode: str
    queue_id: int
    offset: int


def message_id_text(topic_id: int, enode: str, queue_id: int, offset: int) -> str:
    """The id of the message at `offset` of a queue, such as "00c0ffee00c0ffee-enode-0-3-42"."""
    return f"{topic_id:016x}-{enode}-{queue_id}-{offset}"


def message_address(message_id: str) -> MessageAddress | None:
    """Where the message with this id lies; None when the id does not say, so that its producer must have chosen it."""
    match = _TEXT.fullmatch(message_id)
    return MessageAddress(int(match[1], 16), match[2], int(match[3]), int(match[4])) if match else None
