"""Where a message lay first, which its copies in retry and dead-letter topics say of it."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

ORIGIN_TOPIC = "RETRY_TOPIC"
"""RocketMQ's name for it, as is the next."""
ORIGIN_ID = "ORIGIN_MESSAGE_ID"
ORIGIN_ENODE, ORIGIN_QUEUE_ID, ORIGIN_OFFSET = "ORIGIN_ENODE", "ORIGIN_QUEUE_ID", "ORIGIN_OFFSET"
ORIGIN_STORED_AT_MS = "ORIGIN_STORED_AT_MS"
_NUMBER = re.compile("[0-9]{0,18}")
_WORD_LENGTH_MAX = 255
"""Longer is no name and no id; said a second time in a dead letter it might find no room there."""


@dataclass(frozen=True, slots=True)
class Origin:
    """A place in a topic that producers send to, in the words of properties."""

    topic: str
    message_id: str
    enode: str = ""
    """This and what follows is empty where a copy of an older version does not say it."""
    queue_id: str = ""
    offset: str = ""
    stored_at_ms: str = ""

    @classmethod
    def of_copy(cls, properties: Mapping[str, str]) -> "Origin | None":
        """What a copy says; None if it is no copy, or its producer made up what it says."""
        if ORIGIN_TOPIC not in properties or ORIGIN_ID not in properties:
            return None
        numbers = [properties.get(name, "") for name in (ORIGIN_QUEUE_ID, ORIGIN_OFFSET, ORIGIN_STORED_AT_MS)]
        words = [properties.get(name, "") for name in (ORIGIN_TOPIC, ORIGIN_ID, ORIGIN_ENODE)]
        if any(_NUMBER.fullmatch(one) is None for one in numbers) or max(map(len, words)) > _WORD_LENGTH_MAX:
            return None
        return cls(
            properties[ORIGIN_TOPIC],
            properties[ORIGIN_ID],
            properties.get(ORIGIN_ENODE, ""),
            properties.get(ORIGIN_QUEUE_ID, ""),
            properties.get(ORIGIN_OFFSET, ""),
            properties.get(ORIGIN_STORED_AT_MS, ""),
        )

    def properties(self) -> dict[str, str]:
        """What a copy says of it."""
        said = {
            ORIGIN_TOPIC: self.topic,
            ORIGIN_ID: self.message_id,
            ORIGIN_ENODE: self.enode,
            ORIGIN_QUEUE_ID: self.queue_id,
            ORIGIN_OFFSET: self.offset,
            ORIGIN_STORED_AT_MS: self.stored_at_ms,
        }
        return {name: value for name, value in said.items() if value}
