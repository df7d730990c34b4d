"""Copies of messages in retry and dead-letter topics: the properties that name a message's origin, and batches."""

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeVar

from ortoo.common.groups.group_topics import group_of_topic
from ortoo.common.records.batch import encode, split_messages
from ortoo.common.records.message import Message
from ortoo.common.records.message_id import message_id_text
from ortoo.common.records.sealed_batch import SealedBatch
from ortoo.common.records.text_rules import (
    COPY_LIMITS,
    ORIGIN_MESSAGE_ID,
    ORIGIN_NAMES,
    REQUEST_PROPERTIES,
    RETRY_TOPIC,
)
from ortoo.enode.pops.reading import CachedBatch
from ortoo.enode.state.tables.pops import PopKey
from ortoo.enode.store.store import Store

_NUMBER = re.compile("[0-9]{0,18}")
_FIELD_LENGTH_MAX = 255
"""Longer texts are neither names nor ids. Repeated in a dead letter they might exceed its size limit."""
T = TypeVar("T")


class Origin(NamedTuple):
    """The original place of a message, in the topic that its producer sent it to; all values are property texts."""

    topic: str
    message_id: str
    enode: str
    """This and the following fields are empty in copies that an older version made."""
    queue_id: str
    offset: str
    stored_at_ms: str

    @classmethod
    def of_copy(cls, properties: Mapping[str, str]) -> "Origin | None":
        """The origin in a copy's properties; None if the message is no copy, or a copy of another version."""
        if RETRY_TOPIC not in properties or ORIGIN_MESSAGE_ID not in properties:
            return None
        origin = cls(*(properties.get(name, "") for name in ORIGIN_NAMES))
        are_numbers = all(_NUMBER.fullmatch(one) for one in (origin.queue_id, origin.offset, origin.stored_at_ms))
        longest = max(map(len, (origin.topic, origin.message_id, origin.enode)))
        return origin if are_numbers and longest <= _FIELD_LENGTH_MAX else None

    @classmethod
    def of_dead_letter(cls, letter: Message) -> "Origin":
        """The origin in a dead letter's properties."""
        properties = {"DLQ_ORIGIN_MESSAGE_ID": letter.message_id or "", **letter.properties}
        return cls(*(properties.get(_in_dead_letter(field), "") for field in cls._fields))

    def properties(self) -> dict[str, str]:
        """The properties of a retry copy."""
        return {name: value for name, value in zip(ORIGIN_NAMES, self, strict=True) if value}

    def dead_letter_properties(self) -> dict[str, str]:
        """The properties of a dead letter."""
        return {_in_dead_letter(field): value for field, value in self._asdict().items()}


def _in_dead_letter(field: str) -> str:
    return f"DLQ_ORIGIN_{field.upper()}"


def message_with_id(opened: CachedBatch, store: Store, place: PopKey, offset: int) -> Message:
    """A message of a queue of `store`. If it has no message id, it gets the id of its place.

    Of the system properties of a topic to which clients can send, only those of a request are kept.
    """
    topic_id, _, queue_id = place
    message = opened.view.message(offset - opened.first_offset)
    if group_of_topic(store.topic_name(topic_id)) is None:
        message = message.without_system_properties(kept=REQUEST_PROPERTIES)
    if message.message_id:
        return message
    return message.replace(message_id=message_id_text(topic_id, store.enode, queue_id, offset))


def origin_of(message: Message, opened: CachedBatch, store: Store, place: PopKey, offset: int) -> Origin:
    """The origin of a message: its place in a queue of `store`, or, for a copy, the origin in its properties."""
    topic_id, _, queue_id = place
    return Origin.of_copy(message.properties) or Origin(
        store.topic_name(topic_id),
        message.message_id or "",
        store.enode,
        str(queue_id),
        str(offset),
        str(opened.stored.stored_at_ms),
    )


def batch_copies(copies: Sequence[tuple[T, Message]], now_ms: int) -> list[tuple[SealedBatch, list[T]]]:
    """Pack the copies of (source, copy) pairs into batches; returns each batch with the sources of its messages."""
    batches, at = [], 0
    for part in split_messages([copy for _, copy in copies]):
        sources = [of for of, _ in copies[at : at + len(part)]]
        batches.append((encode(part, now_ms=now_ms, limits=COPY_LIMITS), sources))
        at += len(part)
    return batches
