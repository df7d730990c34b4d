"""The writing end of the log: positions, segments, flush groups. It belongs to the event loop."""

import asyncio
import errno
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ortoo.common.errors import NOT_TAKEN_FIELD, Overloaded, Unavailable
from ortoo.common.process.clock import Clock
from ortoo.common.records.sealed_batch import SealedBatch, crc32c
from ortoo.enode.changes.all import HEAD_BYTES, Change, encode_changes
from ortoo.enode.disk.disk import Buffer
from ortoo.enode.log.checkpoint import Slice
from ortoo.enode.log.disk_work import DiskWork
from ortoo.enode.log.frame import (
    ALIGNMENT_BYTES,
    HEADER_BYTES,
    PADDING,
    Flag,
    FrameHeader,
    Kind,
    frame_bytes,
)
from ortoo.enode.log.group import Entry, Group, Part
from ortoo.enode.log.segment import Segment
from ortoo.enode.log.settings import StoreSettings
from ortoo.enode.log.spares import Spares

CHANGES_BYTES_MAX = 1 << 20
UNTIL_OPENED = "the store acknowledges nothing until it is opened again"


@dataclass(kw_only=True, eq=False)
class Appender:
    """Accepts frames, gives them their positions and sees to it that they become durable in that order."""

    active: Segment
    appended_position: int
    """Where the next frame goes; at first everything before it is durable."""
    store_open: int
    stored_at_ms: int
    """When the last frame was stored."""
    settings: StoreSettings
    clock: Clock
    work: DiskWork
    spares: Spares
    on_committed: Callable[[Group], None]
    """Gets each group when it is committed, before its waiters: on disk, and at a replica where one is waited for."""
    on_roll: Callable[[Segment], None]
    """Gets each new segment as soon as positions are given out in it."""
    failure: str = ""
    """Why nothing is acknowledged any more; empty while all is well."""
    full: str = ""
    """Why sends are refused until there is space; empty while there is."""
    alone: str = ""
    """Why nothing is accepted although the disk is well: no replica follows, and answers wait for one."""
    replicated_position: int | None = None
    """Up to where a replica has the log too; None = nobody waits for replicas."""
    pending_bytes: int = 0
    flushes: int = 0
    flush_s: float = 0.0
    """How long flushes took, all together."""

    def __post_init__(self) -> None:
        """Nothing is on its way yet."""
        self.durable_position = self.appended_position
        self.committed_position = self.appended_position
        """Everything before it is folded into the state, shown and answered for; what lies behind may still go."""
        self._loop = asyncio.get_running_loop()
        self._groups: deque[Group] = deque()
        self._flushing: Group | None = None
        self._held: deque[Group] = deque()
        self._handover_scheduled = False
        self._wanted = False
        self._handed_over_s = 0.0
        self._retry: Group | None = None
        self._forget_changes()
        self._room_lock = asyncio.Lock()
        self._room_waiting = 0
        self._idle: asyncio.Event = asyncio.Event()
        self._idle.set()
        self.flush_due = asyncio.Event()
        """Set while frames wait that nobody asked to be flushed at once."""
        self.advanced: dict[asyncio.Event, None] = {}
        """Set whenever the durable position grows, for those who go along behind it."""
        self.flushed = asyncio.Event()
        """Set by each flush; cleared by whoever watches for idleness."""

    # room

    def fits(self, length: int) -> bool:
        """Whether a frame with so many bytes of prefix and payload can be appended now, without waiting."""
        return not self._room_waiting and self._has_room(frame_bytes(length))

    def _has_room(self, needed: int) -> bool:
        if self._changes:
            needed += frame_bytes(HEAD_BYTES + self._changes_bytes)
        return self.appended_position + needed + HEADER_BYTES <= self.active.limit

    async def make_room(self, length: int, *, is_state: bool) -> None:
        """Wait for room for a frame; in turn, so that appends keep their order. Room is there until the next await.

        Errors: Overloaded when the disk is full, Unavailable when it failed.
        """
        self._room_waiting += 1
        try:
            async with self._room_lock:
                needed = frame_bytes(length)
                while not self._has_room(needed):
                    self.check_alive()
                    try:
                        spare = await self.spares.take(needed + HEADER_BYTES, is_state=is_state)
                    except Overloaded as error:
                        if not is_state:
                            self.full = error.message
                            error.field = NOT_TAKEN_FIELD
                        raise
                    except OSError as error:
                        raise Unavailable(f"no new segment could be made: {error}") from error
                    self._roll(spare.segment())
        finally:
            self._room_waiting -= 1

    def check_alive(self) -> None:
        """Errors: Unavailable when the disk failed: what is not durable yet never will be acknowledged."""
        if self.failure:
            raise Unavailable(f"{self.failure}: {UNTIL_OPENED}")

    def check_load(self, length: int) -> None:
        """Errors: Unavailable when the disk failed; Overloaded when it is full (NOT_TAKEN_FIELD), or too much waits."""
        if self.failure:
            raise Unavailable(f"{self.failure}: {UNTIL_OPENED}", field=NOT_TAKEN_FIELD)
        if self.alone:
            raise Unavailable(self.alone, field=NOT_TAKEN_FIELD)
        if self.full:
            raise Overloaded(self.full, field=NOT_TAKEN_FIELD, retry_after_ms=self.settings.disk_check_interval_ms)
        if self.pending_bytes + length > self.settings.pending_bytes_max:
            raise Overloaded(f"{self.pending_bytes} bytes wait for the disk", retry_after_ms=50)

    def _roll(self, segment: Segment) -> None:
        """End the active segment with a mark and go on in the next, which has no base yet."""
        self.close_changes()
        self._append(self._header(Kind.MARK, flags=Flag.SEGMENT_END), (), Entry)
        full = self.active
        full.end = self.appended_position
        full.last_stored_at_ms = self.stored_at_ms
        segment.base = self.appended_position
        segment.limit += segment.base
        self.active = segment
        self.on_roll(segment)

    # accepting; the caller made sure of room

    def append_batch(
        self, header: FrameHeader, batch: SealedBatch, queue: object, prefix: bytes, changes: tuple[Change, ...]
    ) -> None:
        """Accept a messages frame that `header` describes; its position is the appended position.

        `prefix` is `changes` encoded: what happens together with the batch.
        """
        body = (prefix, batch.records) if prefix else (batch.records,)
        self._append(header, body, lambda it: Entry(it, batch, changes, queue))

    def append_mark(self, flags: int = 0) -> None:
        """Accept a mark."""
        self._append(self._header(Kind.MARK, flags=flags), (), Entry)

    def append_slice(self, part: Slice) -> None:
        """Accept a slice of a checkpoint."""
        payload = part.encoded()
        header = self._header(Kind.CHECKPOINT, payload=payload, item_count=part.number)
        self._append(header, (payload,), lambda it: Entry(it, slice_at=part.at(it.position)))

    def append_changes(self, changes: Sequence[Change], encoded: Sequence[bytes], waiter: asyncio.Future[Any]) -> None:
        """Accept state changes that belong together, behind all that wait; those of one flush share frames.

        `waiter` gets None when all are durable. There was room for `changes_room` of them.
        """
        self._idle.clear()
        for number, (change, data) in enumerate(zip(changes, encoded, strict=True), 1):
            self._changes.append(data)
            self._changed.append(change)
            self._changes_bytes += len(data)
            if number == len(changes):
                self._changes_waiters.append((waiter, None))
            if self._changes_bytes > CHANGES_BYTES_MAX:
                self.close_changes()

    @staticmethod
    def changes_room(encoded: Sequence[bytes]) -> int:
        """The payload length to ask room for, for all of these changes: as one frame, or as many as they need."""
        length = sum(map(len, encoded))
        return HEAD_BYTES + length + length // CHANGES_BYTES_MAX * (frame_bytes(HEAD_BYTES) + ALIGNMENT_BYTES)

    def wait_flush(self, waiter: asyncio.Future[Any], answer: Any) -> None:
        """`waiter` gets `answer` when everything accepted so far is durable."""
        self._group().waiters.append((waiter, answer))

    def next_stored_at_ms(self) -> int:
        """The time to stamp the next frame with; never goes back."""
        now = self.clock.now_ms()
        if now > self.stored_at_ms:
            self.stored_at_ms = now
        return self.stored_at_ms

    def _header(self, kind: Kind, *, payload: bytes = b"", flags: int = 0, item_count: int = 0) -> FrameHeader:
        return FrameHeader(
            kind=kind,
            position=self.appended_position,
            durable_below=self.durable_position,
            store_open=self.store_open,
            stored_at_ms=self.next_stored_at_ms(),
            flags=flags,
            length=len(payload),
            payload_crc=crc32c(payload),
            item_count=item_count,
        )

    def _group(self) -> Group:
        if not self._groups:
            self._groups.append(Group())
        return self._groups[-1]

    def _append(self, header: FrameHeader, body: tuple[Buffer, ...], entry: Callable[[FrameHeader], Entry]) -> None:
        groups = self._groups
        if not groups or groups[-1].bytes >= self.settings.flush_bytes_max:
            groups.append(Group())
        group = groups[-1]
        position = header.position
        parts = group.parts
        if not parts or parts[-1].segment is not self.active:
            parts.append(Part(self.active, position))
        buffers = parts[-1].buffers
        buffers.append(header.encoded())
        buffers.extend(body)
        body_bytes = header.length + header.prefix_length
        total = frame_bytes(body_bytes)
        if padding := total - HEADER_BYTES - body_bytes:
            buffers.append(PADDING[padding])
        group.entries.append(entry(header))
        group.bytes += total
        self.pending_bytes += total
        self.appended_position = group.end_position = position + total
        self._idle.clear()

    def close_changes(self) -> None:
        """Put the changes that wait into one state frame."""
        if not self._changes:
            return
        payload = encode_changes(self._changes)
        changed = tuple(self._changed)
        waiters = self._changes_waiters
        self._forget_changes()
        header = self._header(Kind.STATE, payload=payload, item_count=len(changed))
        self._append(header, (payload,), lambda it: Entry(it, None, changed))
        self._groups[-1].waiters.extend(waiters)

    def _forget_changes(self) -> None:
        """No state change waits for its frame."""
        self._changes: list[bytes] = []
        self._changed: list[Change] = []
        self._changes_bytes = 0
        self._changes_waiters: list[tuple[asyncio.Future[Any], Any]] = []

    # flushing

    def want_flush(self) -> None:
        """Flush as soon as the flush before is done; what comes until then joins."""
        self._wanted = True
        if not self._handover_scheduled and self._flushing is None:
            self._handover_scheduled = True
            self._loop.call_soon(self._hand_over)

    async def flush(self) -> None:
        """Wait until everything accepted so far is durable. Errors: Unavailable when the disk failed."""
        self.check_alive()
        waiter = self._loop.create_future()
        self.close_changes()
        self.wait_flush(waiter, None)
        self.want_flush()
        await waiter

    async def settled(self) -> None:
        """Wait until nothing is on its way to the disk."""
        await self._idle.wait()

    def _hand_over(self) -> None:
        self._handover_scheduled = False
        if self._flushing is not None or self.failure:
            return
        self.close_changes()
        if not self._groups:
            self._wanted = False
            return
        group = self._groups.popleft()
        self._wanted = bool(self._groups)
        if not group.parts:
            self._flushing = group
            self._done(group, None)
            return
        self._flushing = group
        group.declare_durable_below(self.durable_position)
        self._handed_over_s = self.clock.monotonic_s()
        self.work.flush(group, self._done)

    def _done(self, group: Group, error: BaseException | None) -> None:
        if error is not None and self._is_full(error):
            self.full = f"the disk is full: {error}"
            self._retry = group
            return
        self._flushing = None
        if error is not None or self.failure:
            self._fail(group, error)
            return
        if group.parts:
            self.flushes += 1
            self.flush_s += self.clock.monotonic_s() - self._handed_over_s
            self.durable_position = group.end_position
            for event in self.advanced:
                event.set()
            self.pending_bytes -= group.bytes
        if self._wanted or len(self._groups) > 1:
            self._hand_over()
        self._held.append(group)
        self.release()

    def release(self) -> None:
        """Show and answer, in order, what is durable here and, where that is waited for, at a replica too."""
        while self._held and (
            self.replicated_position is None or self._held[0].end_position <= self.replicated_position
        ):
            group = self._held.popleft()
            try:
                self.on_committed(group)
            except Exception as defect:
                self._fail(group, defect)
                raise
            if group.parts:
                self.committed_position = group.end_position
            for waiter, answer in group.waiters:
                if not waiter.done():
                    waiter.set_result(answer)
            self.flushed.set()
        if self._flushing is None and not self._groups and not self._changes and not self._held:
            self._idle.set()

    def give_up_waiting(self, reason: str) -> None:
        """Tell those who wait for a replica that the outcome is unknown; what they sent stays in the log."""
        for group in self._held:
            _fail_all([waiter for waiter, _ in group.waiters], reason)
            group.waiters.clear()

    @staticmethod
    def _is_full(error: BaseException) -> bool:
        return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)

    @property
    def flushing_s(self) -> float:
        """How long the flush has taken that is under way; 0 when there is none."""
        under_way = self._flushing is not None and bool(self._flushing.parts)
        return self.clock.monotonic_s() - self._handed_over_s if under_way else 0.0

    @property
    def is_stuck(self) -> bool:
        """Whether a group waits for space on the disk."""
        return self._retry is not None

    def try_again(self) -> None:
        """Write a group again that met a full disk; called when the disk is looked at."""
        group, self._retry = self._retry, None
        if group is not None and not self.failure:
            self.work.flush(group, self._done)

    def _fail(self, group: Group, error: BaseException | None) -> None:
        """Nothing after the last durable position is acknowledged any more."""
        if error is not None and not self.failure:
            self.failure = f"the disk failed: {error}"
        self.fail_waiting(group)

    def fail_waiting(self, group: Group | None = None) -> None:
        """Tell everybody who waits that the outcome is unknown."""
        groups = ([group] if group else []) + list(self._held) + list(self._groups)
        self._held.clear()
        self._groups.clear()
        waiters = [waiter for one in groups for waiter, _ in one.waiters]
        waiters += [waiter for waiter, _ in self._changes_waiters]
        self._forget_changes()
        _fail_all(waiters, self.failure)
        self._idle.set()


def _fail_all(waiters: list[asyncio.Future[Any]], reason: str) -> None:
    for waiter in waiters:
        if not waiter.done():
            waiter.set_exception(Unavailable(f"{reason}; whether this was stored is unknown"))
            waiter.exception()  # one caller may wait for several, and hears of the first only
