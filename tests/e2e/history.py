"""Check whether the answers about one topic, during failures of its enode's replicas, are those of a single log. Pure.

Times are those of one monotonic clock, in seconds. Bodies are unique. The check takes O(n log n).
"""

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

SHOWN = 5
"""Number of problems of a kind that are reported."""


@dataclass(frozen=True, slots=True)
class Send:
    """A send that ended."""

    body: bytes
    invoked_s: float
    ended_s: float
    queue: int = 0
    offset: int = -1
    """The acknowledged offset; negative when it is unknown whether the message is stored."""
    refused: bool = False
    """Whether the answer was that it is not stored."""


@dataclass(frozen=True, slots=True)
class Read:
    """The answer to one read of a queue, from its `begin` to the end that was reported."""

    queue: int
    invoked_s: float
    ended_s: float
    end: int
    """The offset behind the last message at that time."""
    found: tuple[tuple[int, bytes], ...] = ()
    """(offset, body) of the messages that it returned."""


@dataclass(slots=True)
class History:
    """A whole history. `final` are reads of whole queues after the run, one for each queue."""

    sends: list[Send] = field(default_factory=list)
    reads: list[Read] = field(default_factory=list)
    final: list[Read] = field(default_factory=list)
    is_idempotent: bool = True
    """Whether a retried send is stored once."""

    def problems(self) -> list[str]:
        """The contradictions, as text; empty when there is none."""
        found: list[str] = []
        for kind in (
            self._values(),
            self._orders(),
            self._reads_go_on(),
            self._reads_see(),
            self._final_is_whole(),
            self._nothing_else(),
        ):
            found += list(kind)[:SHOWN]
        return found

    def _acknowledged(self) -> list[Send]:
        return [one for one in self.sends if one.offset >= 0 and not one.refused]

    def _values(self) -> Iterator[str]:
        """Each (queue, offset) has one value, whichever replica was the leader or answered."""
        known: dict[tuple[int, int], bytes] = {}
        told = [((one.queue, one.offset), one.body) for one in self._acknowledged()]
        told += [((read.queue, at), body) for read in (*self.reads, *self.final) for at, body in read.found]
        for place, body in told:
            if known.setdefault(place, body) != body:
                yield f"queue {place[0]} has {known[place]!r} and {body!r} at {place[1]}"
        places: dict[bytes, tuple[int, int]] = {}
        for one in self._acknowledged():
            place = (one.queue, one.offset)
            if self.is_idempotent and places.setdefault(one.body, place) != place:
                yield f"{one.body!r} was acknowledged at {places[one.body]} and at {place}"

    def _orders(self) -> Iterator[str]:
        """A message acknowledged before the start of another send has a lower offset than that."""
        for queue, sends in _by_queue(self._acknowledged()):
            ended = sorted(sends, key=lambda one: one.ended_s)
            highest: Send | None = None
            at = 0
            for one in sorted(sends, key=lambda one: one.invoked_s):
                while at < len(ended) and ended[at].ended_s < one.invoked_s:
                    highest = ended[at] if highest is None else max(highest, ended[at], key=lambda it: it.offset)
                    at += 1
                if highest is not None and highest.offset >= one.offset:
                    yield (
                        f"queue {queue} has {one.body!r} at {one.offset}, and {highest.body!r}, acknowledged before it "
                        f"was sent, at {highest.offset}"
                    )

    def _reads_go_on(self) -> Iterator[str]:
        """No read ends below one that had finished before it began."""
        for queue, reads in _by_queue((*self.reads, *self.final)):
            yield from _behind(
                queue, reads, ((one.ended_s, one.end, "a read that had finished ended") for one in reads)
            )

    def _reads_see(self) -> Iterator[str]:
        """A read returns every message that was acknowledged before it began."""
        sends = dict(_by_queue(self._acknowledged()))
        for queue, reads in _by_queue((*self.reads, *self.final)):
            before = ((one.ended_s, one.offset + 1, f"{one.body!r} lay") for one in sends.get(queue, []))
            yield from _behind(queue, reads, before)

    def _final_is_whole(self) -> Iterator[str]:
        """The last read has every acknowledged message at its offset, and no gaps."""
        final = {(read.queue, at): body for read in self.final for at, body in read.found}
        for one in self._acknowledged():
            if final.get((one.queue, one.offset)) != one.body:
                yield f"{one.body!r} was acknowledged in queue {one.queue} at {one.offset} and is not there"
        for read in self.final:
            offsets = sorted(at for at, _ in read.found)
            if offsets != list(range(read.end - len(offsets), read.end)):
                yield f"queue {read.queue} has gaps below {read.end}"

    def _nothing_else(self) -> Iterator[str]:
        """Every stored message was sent and not refused, and is stored once if clients number their batches."""
        stored = Counter(body for read in self.final for _, body in read.found)
        sent = {one.body for one in self.sends}
        answered = {one.body for one in self.sends if not one.refused}
        for body, count in stored.items():
            if body not in sent:
                yield f"{body!r} is there and was never sent"
            elif body not in answered:
                yield f"{body!r} was refused and is there"
            if count > 1 and self.is_idempotent:
                yield f"{body!r} is there {count} times"


def _by_queue(all_of: Iterable[Send | Read]) -> list[tuple[int, list]]:  # type: ignore[type-arg]
    found: defaultdict[int, list[Send | Read]] = defaultdict(list)
    for one in all_of:
        found[one.queue].append(one)
    return sorted(found.items())


def _behind(queue: int, reads: Iterable[Read], known: Iterable[tuple[float, int, str]]) -> Iterator[str]:
    """Reads that end below an earlier known end: (since when, which end, description)."""
    ordered = sorted(known)
    times = [since_s for since_s, _, _ in ordered]
    highest: list[tuple[int, str]] = []
    for _, end, what in ordered:
        highest.append(max(highest[-1], (end, what)) if highest else (end, what))
    for read in reads:
        at = bisect_left(times, read.invoked_s)
        if at and highest[at - 1][0] > read.end:
            end, what = highest[at - 1]
            yield f"a read of queue {queue} that began at {read.invoked_s:.3f} s ends at {read.end}; {what} at {end}"
