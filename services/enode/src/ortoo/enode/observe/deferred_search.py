"""Finds a message that no consumer can see yet: a delayed message, or a message of an open transaction."""

from collections.abc import Iterable
from dataclasses import dataclass

from ortoo.common.errors import DataLoss, OutOfRange
from ortoo.common.groups.system_topics import DELAYED_TOPIC_ID, HALF_TOPIC_ID
from ortoo.common.records.message import Message
from ortoo.common.records.message_id import message_id_text
from ortoo.common.records.text_rules import RECONSUME_TIMES, whole_number
from ortoo.common.records.view import open_batch
from ortoo.enode.changes.halves import HalfOpen
from ortoo.enode.store.store import Store

SEARCHED_MAX = 1_000
"""The number of delayed messages, and of open transactions, that one search reads."""


@dataclass(frozen=True, slots=True)
class DeferredMessage:
    """A message that is not visible yet."""

    queue_id: int
    deliver_at_ms: int = 0
    """0 = it belongs to a transaction."""
    attempts: int = 0
    """The number of failed attempts, for a copy in a retry topic."""
    half: HalfOpen | None = None


async def find_deferred(store: Store, topic_id: int, message_id: str) -> DeferredMessage | None:
    """The message with this id among the first SEARCHED_MAX; None if it is not one of these.

    Damaged messages are skipped. Errors: Unavailable when the disk cannot be read now.
    """
    for timer in sorted(store.timers.select(topic_id, 0, SEARCHED_MAX), key=lambda one: one.place):
        message = await _read(store, DELAYED_TOPIC_ID, timer.place)
        generated = message_id_text(DELAYED_TOPIC_ID, store.enode, 0, timer.timer_id)
        if message is not None and message_id == (message.message_id or generated):
            attempts = whole_number(message.properties.get(RECONSUME_TIMES, "")) or 0
            return DeferredMessage(timer.queue_id, timer.deliver_at_ms, attempts)
    for half in _halves(store, topic_id):
        for place in range(half.place, half.place + half.count):
            message = await _read(store, HALF_TOPIC_ID, place)
            if message is not None and message.message_id == message_id:
                return DeferredMessage(half.queue_id, half=half)
    return None


def _halves(store: Store, topic_id: int) -> Iterable[HalfOpen]:
    return list(store.halves.select(topic_id=topic_id, limit=SEARCHED_MAX))


async def _read(store: Store, system_topic_id: int, place: int) -> Message | None:
    """The message at a place of a system topic; None if its bytes are lost."""
    try:
        stored = (await store.read_deferred(system_topic_id, place, bytes_max=1))[0]
    except (DataLoss, OutOfRange):
        return None
    return open_batch(stored.batch).message(place - stored.first_offset)
