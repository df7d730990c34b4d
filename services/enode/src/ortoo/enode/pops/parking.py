"""Parking: a copy of a message in the dead-letter topic, with everything that a person will ask about it."""

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
"""Its time was over before the group got it."""
TOLD_LENGTH_MAX = 1024
"""So many characters of what a consumer says of itself and of its error are kept."""
PARK_LEASE_MS = 30_000
"""How long parking may take."""
RETRY_DELAY_MS = 1_000
"""When to try again to park a message that could not be."""
Place = tuple[PopKey, int]
"""Where a group pops, and an offset there."""
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
    """What a consumer said of a try, kept for the dead letter: here, and by these changes in the log."""
    said = (consumer[:TOLD_LENGTH_MAX], error[:TOLD_LENGTH_MAX])
    for offset in offsets if any(said) else ():
        if line.notes.get(offset) != said:
            line.notes[offset] = said
            yield PopNote(*line.place, offset, *said)


def parked_copies(
    opened: OpenedBatch, store: Store, place: PopKey, letters: Sequence[DeadLetter], now_ms: int
) -> list[tuple[SealedBatch, list[int]]]:
    """Batches of copies for the dead-letter topic, each with the offsets of the messages it stands for."""
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
    """What a consumer said, whatever it was: it must not keep its message from being parked."""
    return on_one_line(text[:TOLD_LENGTH_MAX])


def _text(number: int | None) -> str:
    return "" if number is None else str(number)


class Parking:
    """Puts messages into the dead-letter topic."""

    def __init__(self, store: Store, reading: PopReading, clock: Clock, background: Background) -> None:
        """Copy within `store`; what was begun goes on in `background` when whoever asked for it goes away."""
        self.parked_totals: Counter[tuple[int, str]] = Counter()
        """(topic id, group) to messages that became dead letters."""
        self._store = store
        self._reading = reading
        self._clock = clock
        self._background = background
        self._under_way: dict[Place, asyncio.Future[None]] = {}

    async def park_or_return(self, line: GroupLine, number: int, letters: list[DeadLetter], rules: PopRules) -> None:
        """A dead-letter topic that is away never stops the others: the message stays and is tried again."""
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
        """Copy messages to the dead-letter topic; in the same frame the group is done with them.

        Of a message that is being parked already the end is waited for, and one that the group has done with meanwhile
        is passed over: it gets one dead letter. Errors: as `Store.append`; Unavailable while there is no dead-letter
        topic.
        """
        if not rules.dead_letter_topic_id:
            raise Unavailable("the dead-letter topic is being created", retry_after_ms=RETRY_DELAY_MS)
        known = self._store.engine.state.pops.get(line.place)
        open_ones = [one for one in letters if known is None or not known.intervals.is_finished(one.offset)]
        places = {(line.place, one.offset): one for one in open_ones}
        others = dict.fromkeys(self._under_way[place] for place in places if place in self._under_way)
        fresh = {place: one for place, one in places.items() if place not in self._under_way}
        if fresh:
            # Noted before anything else runs: who asks in the same turn of the loop must find it.
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
                line.group.line(line.queue_id).drop(ranges)  # it may have been made anew meanwhile
                self.parked_totals[line.group.topic_id, line.group.name] += len(offsets)
        line.group.wake()
