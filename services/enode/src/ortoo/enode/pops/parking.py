"""Parking: a copy of a message in the dead-letter topic, with the properties that operators need."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from ortoo.common.errors import OrtooError, Unavailable
from ortoo.common.groups.failure_rule import REASON_ATTEMPTS
from ortoo.common.groups.pop import PopRules, merge_ranges
from ortoo.common.logs.logger import get_logger
from ortoo.common.process.background import Background
from ortoo.common.process.clock import Clock
from ortoo.common.records.message import Message
from ortoo.common.records.sealed_batch import SealedBatch
from ortoo.common.records.text_rules import without_control_characters
from ortoo.enode import log_events
from ortoo.enode.changes.pops import PopFinished, PopNote
from ortoo.enode.pops.copies import batch_copies, message_with_id, origin_of
from ortoo.enode.pops.lines import GroupLine
from ortoo.enode.pops.reading import CachedBatch, PopReader
from ortoo.enode.state.tables.pops import FinishReason, PopKey
from ortoo.enode.store.store import Store

REASON_EXPIRED = "expired"
"""The message expired before the group got it."""
NOTE_LENGTH_MAX = 1024
"""The number of characters kept of a consumer's name and of its error text."""
PARK_LEASE_MS = 30_000
"""The lease during which a message is parked."""
RETRY_DELAY_MS = 1_000
"""The delay before parking that failed is retried."""
PopPlace = tuple[PopKey, int]
"""A group's queue, and an offset in it."""
_log = get_logger("pops")


@dataclass(frozen=True, slots=True)
class ParkedMessage:
    """A message to park, and the reason."""

    offset: int
    attempts: int
    reason: str = REASON_ATTEMPTS
    consumer: str = ""
    error: str = ""


def record_notes(line: GroupLine, offsets: Iterable[int], consumer: str, error: str) -> Iterator[PopNote]:
    """Keep a consumer's report of a failed attempt in memory; yields the changes that store the report in the log."""
    note = (consumer[:NOTE_LENGTH_MAX], error[:NOTE_LENGTH_MAX])
    for offset in offsets if any(note) else ():
        if line.notes.get(offset) != note:
            line.notes[offset] = note
            yield PopNote(*line.place, offset, *note)


def make_parked_copies(
    opened: CachedBatch, store: Store, place: PopKey, letters: Sequence[ParkedMessage], now_ms: int
) -> list[tuple[SealedBatch, list[int]]]:
    """Batches of copies for the dead-letter topic, each with the offsets of the messages that were copied."""
    return batch_copies([(one.offset, _make_parked_copy(opened, store, place, one, now_ms)) for one in letters], now_ms)


def _make_parked_copy(opened: CachedBatch, store: Store, place: PopKey, letter: ParkedMessage, now_ms: int) -> Message:
    message = message_with_id(opened, store, place, letter.offset)
    origin = origin_of(message, opened, store, place, letter.offset)
    added = {
        "DLQ_ATTEMPTS": str(letter.attempts),
        "DLQ_CONSUMER": _note_text(letter.consumer),
        "DLQ_DELIVER_AT_MS": _text(message.deliver_at_ms),
        "DLQ_ERROR": _note_text(letter.error),
        "DLQ_EXPIRE_AT_MS": _text(message.expire_at_ms),
        "DLQ_GROUP": place[1],
        "DLQ_PARKED_AT_MS": str(now_ms),
        "DLQ_PRIORITY": _text(message.priority),
        "DLQ_REASON": letter.reason,
        **origin.dead_letter_properties(),
    }
    kept = {name: value for name, value in message.properties.items() if name not in added}
    properties = {**kept, **{name: value for name, value in sorted(added.items()) if value}}
    return message.replace(properties=properties, deliver_at_ms=None, priority=None, expire_at_ms=None)


def _note_text(text: str) -> str:
    """A consumer's text, shortened and without control characters, so that the text never prevents parking."""
    return without_control_characters(text[:NOTE_LENGTH_MAX])


def _text(number: int | None) -> str:
    return "" if number is None else str(number)


class Parker:
    """Puts messages into the dead-letter topic."""

    def __init__(self, store: Store, reading: PopReader, clock: Clock, background: Background) -> None:
        """Copy within `store`. Parking runs in `background`, so that it continues when its caller is cancelled."""
        self.parked_totals: Counter[tuple[int, str]] = Counter()
        """(topic id, group) to the number of dead letters."""
        self._store = store
        self._reading = reading
        self._clock = clock
        self._background = background
        self._in_flight: dict[PopPlace, asyncio.Future[None]] = {}

    async def park_or_return(self, line: GroupLine, number: int, letters: list[ParkedMessage], rules: PopRules) -> None:
        """Park messages. If this fails, deliver them again, so that no message waits for the dead-letter topic."""
        try:
            await self.park(line, letters, rules)
        except OrtooError as error:
            if rules.dead_letter_topic_id:  # otherwise the snode creates it, and reports a failure
                _log.emit(log_events.PARKING_FAILED_RETRYING, group=line.group.name, reason=str(error))
            notes = [note for one in letters for note in record_notes(line, (one.offset,), one.consumer, one.error)]
            with contextlib.suppress(OrtooError):
                await self._store.engine.store_without_waiting(notes)
            ranges = merge_ranges((one.offset, 1) for one in letters)
            line.redeliver(ranges, number, line.group.now_ms(), RETRY_DELAY_MS)
            line.group.plan_wake_up()

    async def park(self, line: GroupLine, letters: list[ParkedMessage], rules: PopRules) -> None:
        """Copy messages to the dead-letter topic. The same frame finishes the messages for the group.

        Each message gets one dead letter. Finished messages are skipped. If another call is parking a message, this
        call waits for it. Errors: those of `Store.append`; Unavailable while there is no dead-letter topic.
        """
        if not rules.dead_letter_topic_id:
            raise Unavailable("the dead-letter topic is being created", retry_after_ms=RETRY_DELAY_MS)
        stored_queue = self._store.engine.state.pops.get(line.place)
        unfinished = [
            one for one in letters if stored_queue is None or not stored_queue.intervals.is_finished(one.offset)
        ]
        places = {(line.place, one.offset): one for one in unfinished}
        others = dict.fromkeys(self._in_flight[place] for place in places if place in self._in_flight)
        unparked = {place: one for place, one in places.items() if place not in self._in_flight}
        if unparked:
            # Registered without an await in between: a caller in the same turn of the loop must find it.
            parked = self._background.start_future("park", self._park(line, list(unparked.values()), rules))
            self._in_flight.update(dict.fromkeys(unparked, parked))
            parked.add_done_callback(lambda _: [self._in_flight.pop(place) for place in unparked])
            others[parked] = None
        for other in others:
            await asyncio.shield(other)

    async def _park(self, line: GroupLine, letters: list[ParkedMessage], rules: PopRules) -> None:
        at = 0
        while at < len(letters):
            opened = await self._reading.batch_at(line, letters[at].offset)
            if opened is None:
                at += 1
                continue
            in_batch = [one for one in letters[at:] if opened.first_offset <= one.offset < opened.end_offset]
            at += len(in_batch)
            for batch, offsets in make_parked_copies(opened, self._store, line.place, in_batch, self._clock.now_ms()):
                ranges = tuple(merge_ranges((offset, 1) for offset in offsets))
                done = PopFinished(*line.place, FinishReason.PARKED, ranges)
                await self._store.append(rules.dead_letter_topic_id, 0, batch, consumes=(done,))
                line.group.get_line(line.queue_id).drop(ranges)  # the line may have been replaced meanwhile
                self.parked_totals[line.group.topic_id, line.group.name] += len(offsets)
        line.group.wake_one()
