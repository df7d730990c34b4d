"""Idempotence: a batch sent again is stored once and answers its first place."""

from collections import deque
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

from ortoo.common.errors import Conflict, Invalid, NotFound, Unavailable
from ortoo.enode.changes.all import Change, ProducerWindow, TopicGone, WindowBatch

BATCHES_REMEMBERED = 5
RETRY_AFTER_MS = 20

Key = tuple[int, int, int]
"""(topic id, queue id, producer id)."""


@dataclass(slots=True)
class Window:
    """What one producer sent to one queue last."""

    next_sequence: int
    used_at_ms: int
    batches: deque[WindowBatch] = field(default_factory=lambda: deque(maxlen=BATCHES_REMEMBERED))


class Windows:
    """The folded windows: those of batches that are durable."""

    def __init__(self) -> None:
        """No producers."""
        self._windows: dict[Key, Window] = {}

    def __len__(self) -> int:
        return len(self._windows)

    def get(self, key: Key) -> Window | None:
        """The window of a producer in a queue, if there is one."""
        return self._windows.get(key)

    def add(self, key: Key, batch: WindowBatch) -> None:
        """Fold one stored batch in. One that is in the window already does nothing: folding twice does no harm."""
        window = self._windows.get(key)
        if window is None:
            window = self._windows[key] = Window(0, 0)
        elif batch.first_sequence < window.next_sequence:
            if batch.first_sequence or batch.stored_at_ms <= window.used_at_ms:
                return
            window.batches.clear()  # the producer was forgotten and began anew
        window.next_sequence = batch.first_sequence + batch.count
        window.used_at_ms = batch.stored_at_ms
        window.batches.append(batch)

    def apply(self, change: Change) -> None:
        """Fold a checkpoint's window or the end of a topic in."""
        if isinstance(change, ProducerWindow):
            window = Window(change.next_sequence, change.used_at_ms)
            window.batches.extend(change.batches)
            self._windows[change.topic_id, change.queue_id, change.producer_id] = window
        elif isinstance(change, TopicGone):
            for key in [key for key in self._windows if key[0] == change.topic_id]:
                del self._windows[key]

    def forget(self, *, used_before_ms: int, keep_max: int) -> int:
        """Drop windows idle since before that time, then the longest idle beyond `keep_max`; return how many."""
        stale = [key for key, window in self._windows.items() if window.used_at_ms < used_before_ms]
        excess = len(self._windows) - len(stale) - keep_max
        if excess > 0:
            gone = set(stale)
            rest = sorted((window.used_at_ms, key) for key, window in self._windows.items() if key not in gone)
            stale += [key for _, key in rest[:excess]]
        for key in stale:
            del self._windows[key]
        return len(stale)

    def keep_only(self, keys: Collection[Key]) -> None:
        """Drop all windows but these."""
        self._windows = {key: window for key, window in self._windows.items() if key in keys}

    def checkpoint(self) -> Iterator[bytes]:
        """The whole as encoded changes; may be drawn while appends go on, for they are then folded again."""
        for key in list(self._windows):
            window = self._windows.get(key)
            if window is not None:
                yield ProducerWindow(
                    *key, window.next_sequence, window.used_at_ms, tuple(window.batches)
                ).encoded()  # fmt: skip


@dataclass(frozen=True, slots=True)
class Accept:
    """The batch is the next one: store it."""


@dataclass(frozen=True, slots=True)
class Duplicate:
    """The batch was stored, or is on its way to the disk."""

    batch: WindowBatch
    durable: bool


class Sequencer:
    """Decides about each idempotent batch, seeing also those on their way to the disk."""

    def __init__(self, windows: Windows, *, idle_ms: int) -> None:
        """Decide over `windows`; those idle for `idle_ms` count as forgotten."""
        self._windows = windows
        self._idle_ms = idle_ms
        self._on_the_way: dict[Key, list[WindowBatch]] = {}
        self._announced: dict[Key, None] = {}

    def decide(self, key: Key, first_sequence: int, count: int, crc: int, now_ms: int) -> Accept | Duplicate:
        """What to do with a batch.

        Errors: Unavailable (a gap), NotFound (forgotten producer), Invalid (overlap), Conflict (other bytes, or so
        long ago that the place is not known any more).
        """
        coming = self._on_the_way.get(key)
        window = self._windows.get(key)
        if window is not None and not coming and window.used_at_ms + self._idle_ms < now_ms:
            window = None
        if coming:
            expected = coming[-1].first_sequence + coming[-1].count
        elif window is not None:
            expected = window.next_sequence
        else:
            return self._first(key, first_sequence)
        if first_sequence == expected:
            return Accept()
        if first_sequence > expected:
            raise _gap(expected, first_sequence)
        for batches, durable in ((coming or (), False), (window.batches if window else (), True)):
            for one in batches:
                if one.first_sequence == first_sequence and one.count == count:
                    if one.crc != crc:
                        raise Conflict(
                            f"sequence {first_sequence} was used for other bytes: a retry sends the same batch",
                            field="batch.first_sequence",
                        )
                    return Duplicate(one, durable)
                if one.first_sequence < first_sequence + count and first_sequence < one.first_sequence + one.count:
                    raise Invalid(
                        f"sequences {first_sequence} to {first_sequence + count} overlap the batch from "
                        f"{one.first_sequence} to {one.first_sequence + one.count}: send batches again as they were",
                        field="batch.first_sequence",
                    )
        raise Conflict(
            f"sequence {first_sequence} was stored long ago, {expected} is next: its offset is not remembered",
            field="batch.first_sequence",
        )

    def _first(self, key: Key, first_sequence: int) -> Accept:
        """A producer without a window must begin at 0, unless its first batch was just refused and comes again."""
        if first_sequence == 0:
            self._announced[key] = None
            while len(self._announced) > 10_000:
                del self._announced[next(iter(self._announced))]
            return Accept()
        if key in self._announced:
            raise _gap(0, first_sequence)
        raise NotFound(
            f"unknown producer {key[2]:#x}: it sent nothing here, or nothing for {self._idle_ms} ms. Take a new "
            "producer id and begin at sequence 0",
            field="batch.producer_id",
        )

    def accepted(self, key: Key, batch: WindowBatch) -> None:
        """A batch is on its way to the disk."""
        self._announced.pop(key, None)
        self._on_the_way.setdefault(key, []).append(batch)

    def settle(self, key: Key) -> None:
        """The oldest batch on its way is durable and folded into the windows."""
        coming = self._on_the_way.get(key)
        if coming:
            del coming[0]
            if not coming:
                del self._on_the_way[key]


def _gap(expected: int, got: int) -> Unavailable:
    return Unavailable(
        f"sequence {expected} is next, got {got}: nothing was stored, send the missing batch first",
        field="batch.first_sequence",
        retry_after_ms=RETRY_AFTER_MS,
    )
