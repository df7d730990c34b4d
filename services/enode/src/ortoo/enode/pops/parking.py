"""Parking: a copy of a message in the dead-letter topic, with the properties that operators need."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from ortoo.common.errors import OrtooError, Unavailable
from ortoo.common.groups.failure_rule import REASON_ATTEMPTS
from ortoo.common.groups.pop import PopRules, merged
from ortoo.common.logs.logger import get_logger
from ortoo.common.process.background import Background
from ortoo.common.process.clock import Clock
from ortoo.common.records.message import Message
from ortoo.common.records.sealed_batch import SealedBatch
from ortoo.common.records.text_rules import on_one_line
from ortoo.enode import log_events
from ortoo.enode.changes.pops import PopFinished, PopNote
from ortoo.enode.pops.copies import identified, in_batches, origin_of
from ortoo.enode.pops.lines import GroupLine
from ortoo.enode.pops.reading import OpenedBatch, PopReading
from ortoo.enode.state.tables.pops import FinishReason, PopKey
from ortoo.enode.store.store import Store

REASON_EXPIRED = "expired"
"""The message expired before the group got it."""
TOLD_LENGTH_MAX = 1024
"""The number of characters kept of a consumer's name and of its error text."""
PARK_LEASE_MS = 30_000
"""The lease during which a message is parked."""
RETRY_DELAY_MS = 1_000
"""The delay before parking that failed is retried."""
Place = tuple[PopKey, int]
"""A group's queue, and an offset in it."""
_log = get_logger("pops")


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """Why one message is parked."""

    offset: int
    attempts: int
    reason: str = REASON_ATTEMPTS
    consumer: str = ""
    error: str = ""


def noted(line: GroupLine, offsets: Iterable[int], consumer: str, error: str) -> Iterator[PopNote]:
    """Keep a consumer's report of a failed attempt for the dead letter: in memory, and by these changes in the log."""
    said = (consumer[:TOLD_LENGTH_MAX], error[:TOLD_LENGTH_MAX])
    for offset in offsets if any(said) else ():
        if line.notes.get(offset) != said:
            line.notes[offset] = said
            yield PopNote(*line.place, offset, *said)


def parked_copies(
    opened: OpenedBatch, store: Store, place: PopKey, letters: Sequence[DeadLetter], now_ms: int
) -> list[tuple[SealedBatch, list[int]]]:
    """Batches of copies for the dead-letter topic, each with the offsets of its source messages."""
    return in_batches([(one.offset, _copy(opened, store, place, one, now_ms)) for one in letters], now_ms)


def _copy(opened: OpenedBatch, store: Store, place: PopKey, letter: DeadLetter, now_ms: int) -> Message:
    message = identified(opened, store, place, letter.offset)
    origin = origin_of(message, opened, store, place, letter.offset)
    added = {
        "DLQ_ATTEMPTS": str(letter.attempts),
        "DLQ_CONSUMER": _told(letter.consumer),
        "DLQ_DELIVER_AT_MS": _text(message.deliver_at_ms),
        "DLQ_ERROR": _told(letter.error),
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


def _told(text: str) -> str:
    """A consumer's text, made valid, so that it can never prevent the parking of its message."""
    return on_one_line(text[:TOLD_LENGTH_MAX])


def _text(number: int | None) -> str:
    return "" if number is None else str(number)


class Parking:
    """Puts messages into the dead-letter topic."""

    def __init__(self, store: Store, reading: PopReading, clock: Clock, background: Background) -> None:
        """Copy within `store`. Parking runs in `background`, so that it continues when its caller is cancelled."""
        self.parked_totals: Counter[tuple[int, str]] = Counter()
        """(topic id, group) to the number of dead letters."""
        self._store = store
        self._reading = reading
        self._clock = clock
        self._background = background
        self._under_way: dict[Place, asyncio.Future[None]] = {}

    async def park_or_return(self, line: GroupLine, number: int, letters: list[DeadLetter], rules: PopRules) -> None:
        """Park; on failure return the messages, so that an unavailable dead-letter topic does not stop the others."""
        try:
            await self.park(line, letters, rules)
        except OrtooError as error:
            _log.emit(log_events.PARKING_FAILED_RETRYING, group=line.group.name, reason=str(error))
            notes = [note for one in letters for note in noted(line, (one.offset,), one.consumer, one.error)]
            with contextlib.suppress(OrtooError):
                await self._store.engine.note(notes)
            ranges = merged((one.offset, 1) for one in letters)
            line.give_back(ranges, number, line.group.now_ms(), RETRY_DELAY_MS)
            line.group.plan()

    async def park(self, line: GroupLine, letters: list[DeadLetter], rules: PopRules) -> None:
        """Copy messages to the dead-letter topic; the same frame finishes them for the group.

        Each message gets one dead letter: for one that is being parked already this waits, and finished ones are
        skipped. Errors: as `Store.append`; Unavailable while there is no dead-letter topic.
        """
        if not rules.dead_letter_topic_id:
            raise Unavailable("the dead-letter topic is being created", retry_after_ms=RETRY_DELAY_MS)
        known = self._store.engine.state.pops.get(line.place)
        open_ones = [one for one in letters if known is None or not known.intervals.is_finished(one.offset)]
        places = {(line.place, one.offset): one for one in open_ones}
        others = dict.fromkeys(self._under_way[place] for place in places if place in self._under_way)
        fresh = {place: one for place, one in places.items() if place not in self._under_way}
        if fresh:
            # Registered without an await in between: a caller in the same turn of the loop must find it.
            parked = self._background.asked("park", self._park(line, list(fresh.values()), rules))
            self._under_way.update(dict.fromkeys(fresh, parked))
            parked.add_done_callback(lambda _: [self._under_way.pop(place) for place in fresh])
            others[parked] = None
        for other in others:
            await asyncio.shield(other)

    async def _park(self, line: GroupLine, letters: list[DeadLetter], rules: PopRules) -> None:
        at = 0
        while at < len(letters):
            opened = await self._reading.holding(line, letters[at].offset)
            if opened is None:
                at += 1
                continue
            here = [one for one in letters[at:] if opened.first_offset <= one.offset < opened.end_offset]
            at += len(here)
            for batch, offsets in parked_copies(opened, self._store, line.place, here, self._clock.now_ms()):
                ranges = tuple(merged((offset, 1) for offset in offsets))
                done = PopFinished(*line.place, FinishReason.PARKED, ranges)
                await self._store.append(rules.dead_letter_topic_id, 0, batch, consumes=(done,))
                line.group.line(line.queue_id).drop(ranges)  # the line may have been replaced meanwhile
                self.parked_totals[line.group.topic_id, line.group.name] += len(offsets)
        line.group.wake()
