"""The writing end of the log: assigns positions, segments and flush groups. It belongs to the event loop."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any

from ortoo.common.errors import NOT_ACCEPTED_FIELD, NotLeader, Overloaded, Unavailable
from ortoo.common.records.sealed_batch import SealedBatch, crc32c
from ortoo.enode.changes.kinds import HEAD_BYTES, StateChange, encode_changes
from ortoo.enode.disk.disk import Buffer
from ortoo.enode.log.checkpoint import CheckpointSlice
from ortoo.enode.log.flushing.flush_group import FlushEntry, FlushGroup, PendingChanges, SegmentPart
from ortoo.enode.log.flushing.flusher import NOT_ACKNOWLEDGING, Flusher
from ortoo.enode.log.frame import (
    ALIGNMENT_BYTES,
    HEADER_BYTES,
    PADDING,
    FrameFlag,
    FrameHeader,
    FrameKind,
    frame_bytes,
    may_resemble_frame,
)
from ortoo.enode.log.segment import Segment

CHANGES_BYTES_MAX = 1 << 20


@dataclass(kw_only=True, eq=False)
class Appender(Flusher):
    """Accepts frames, assigns their positions and makes them durable in that order.

    Concurrency: all methods belong to the event loop that opened the log. Only `FlushGroup.write` runs outside it. The
    caller of `reserve_space` appends before its next await.
    Durability: an accepted frame is not durable. A waiter is answered when all frames accepted before it are committed:
    durable here, or, with replicas, on a majority of the voters' disks.
    Errors: a refused frame gets one of `check_accepting`, and nothing of it is stored. After a failed disk each waiter
    gets Unavailable, which says that the outcome is unknown, and nothing is acknowledged until the log is opened again.
    """

    def __post_init__(self) -> None:
        """Start without accepted frames."""
        super().__post_init__()
        self._space_lock = asyncio.Lock()
        self._space_waiters = 0

    # room

    def fits(self, length: int) -> bool:
        """Whether a frame with `length` bytes of prefix and payload can be appended now, without waiting."""
        return not self._space_waiters and self._has_space(frame_bytes(length))

    def _has_space(self, needed: int) -> bool:
        if self._changes.changes:
            needed += frame_bytes(HEAD_BYTES + self._changes.bytes)
        return self.appended_position + needed + HEADER_BYTES <= self.active.limit

    async def reserve_space(self, length: int, *, is_state: bool) -> None:
        """Wait for room for a frame, in the order of the callers. The room is reserved until the caller's next await.

        Errors: Overloaded when the disk is full, Unavailable when the disk failed, NotLeader.
        """
        async with self._in_turn():
            needed = frame_bytes(length)
            while not self._has_space(needed):
                self.check_disk()
                try:
                    spare = await self.spares.take(needed + HEADER_BYTES, is_state=is_state)
                except Overloaded as error:
                    if not is_state:
                        self.refuse_for(error)
                        error.field = NOT_ACCEPTED_FIELD
                    raise
                except OSError as error:
                    self.full = f"no new segment can be made: {error}"
                    raise Unavailable(self.full, field=NOT_ACCEPTED_FIELD) from error
                if not self.may_place:
                    self.spares.put_back(spare)
                    break
                self._roll(spare)
        if not self.may_place:
            raise NotLeader(self.refusal)

    @contextlib.asynccontextmanager
    async def _in_turn(self) -> AsyncIterator[None]:
        """Serialize changes of the active segment, in the order of their callers."""
        self._space_waiters += 1
        try:
            async with self._space_lock:
                yield
        finally:
            self._space_waiters -= 1

    def check_accepting(self, length: int) -> None:
        """Refuse a frame that cannot be stored now.

        Errors: Unavailable (the disk failed), NotLeader, Overloaded. Overloaded has NOT_ACCEPTED_FIELD when the disk is
        full or no file can be opened. The error has no field when too many bytes wait for the disk.
        """
        if self.failure:
            raise Unavailable(f"{self.failure}: {NOT_ACKNOWLEDGING}", field=NOT_ACCEPTED_FIELD)
        if self.refusal:
            raise NotLeader(self.refusal)
        self.check_barred()
        if reason := self.full or self.starved:
            raise Overloaded(reason, field=NOT_ACCEPTED_FIELD, retry_after_ms=self.settings.disk_check_interval_ms)
        if self.pending_bytes + length > self.settings.pending_bytes_max:
            raise Overloaded(f"{self.pending_bytes} bytes wait for the disk", retry_after_ms=50)

    def check_barred(self) -> None:
        """Refuse while another store may be registered for the enode. Errors: Unavailable (NOT_ACCEPTED_FIELD)."""
        if self.barred:
            raise Unavailable(self.barred, field=NOT_ACCEPTED_FIELD, retry_after_ms=1000)

    def _roll(self, segment: Segment, *, stored_at_ms: int | None = None) -> None:
        """End the active segment with a mark and continue in `segment`. `stored_at_ms` is as in `append_mark`."""
        self.seal_changes()
        self.append_mark(FrameFlag.SEGMENT_END, stored_at_ms=stored_at_ms)
        self.end_segment(segment)

    async def end_active_segment(self) -> None:
        """Continue in a new segment, so that retention can delete the active one.

        Does nothing if the active segment ended meanwhile, or this log takes only copies of a leader's frames. Errors:
        as `reserve_space`.
        """
        active = self.active
        async with self._in_turn():
            self.check_disk()
            spare = await self.spares.take(HEADER_BYTES, is_state=True)
            if self.may_place and self.active is active:
                self._roll(spare, stored_at_ms=self.stored_at_ms)  # its end does not make the segment younger
            else:
                self.spares.put_back(spare)
        await self.flush()

    # accepting; the caller has made room

    def append_batch(
        self, header: FrameHeader, batch: SealedBatch, queue: object, prefix: bytes, changes: tuple[StateChange, ...]
    ) -> None:
        """Accept a messages frame with this `header`, whose position must be the appended position.

        `prefix` is the encoding of `changes`, which are stored together with the batch.
        """
        body = (prefix, batch.records) if prefix else (batch.records,)
        self._append(FlushEntry(header, batch, changes, queue), body)

    def append_mark(self, flags: int = 0, *, stored_at_ms: int | None = None) -> None:
        """Accept a mark. Without `stored_at_ms` its time is now."""
        self._append(FlushEntry(self._header(FrameKind.MARK, flags=flags, stored_at_ms=stored_at_ms)), ())

    def append_protocol_frame(self, kind: FrameKind, payload: bytes) -> None:
        """Accept a frame of the replication protocol: epoch, replicas or begin."""
        self._append(FlushEntry(self._header(kind, payload=payload)), (payload,) if payload else ())
        self._groups[-1].has_protocol_frames = True

    def append_copy(self, entry: FlushEntry, frame: Buffer) -> None:
        """Accept a copy of the leader's frame, whose position must be this log's appended position."""
        header = entry.header
        self.stored_at_ms, self.store_open, self.epoch = header.stored_at_ms, header.store_open, header.leader_epoch
        self.active.limit = max(self.active.limit, header.end_position)
        self.active.is_reusable = False  # the body was not searched for bytes that resemble a frame
        self._put(entry, (frame,), is_copy=True)

    def end_segment(self, segment: Segment) -> None:
        """Continue in the spare segment `segment`, because the last accepted frame ends the active segment."""
        full = self.active
        full.end, full.last_stored_at_ms = self.appended_position, self.stored_at_ms
        segment.place_at(self.appended_position)
        self.active = segment
        self.next_segments.append(segment)

    def append_slice(self, part: CheckpointSlice) -> None:
        """Accept a slice of a checkpoint."""
        payload = part.encoded()
        header = self._header(FrameKind.CHECKPOINT, payload=payload, item_count=part.number)
        self._append(FlushEntry(header, slice_at=part.at(header.position)), (payload,))

    def append_changes(
        self, changes: Sequence[StateChange], encoded: Sequence[bytes], waiter: asyncio.Future[Any]
    ) -> None:
        """Accept state changes of one caller, which become durable in this order. Changes of one flush share frames.

        `waiter` gets None when all are durable. The caller has made room for `changes_length`.
        """
        for number, (change, data) in enumerate(zip(changes, encoded, strict=True), 1):
            pending = self._changes
            pending.encoded.append(data)
            pending.changes.append(change)
            pending.bytes += len(data)
            if number == len(changes):
                pending.waiters.append((waiter, None))
            if pending.bytes > CHANGES_BYTES_MAX:
                self.seal_changes()

    @staticmethod
    def changes_length(encoded: Sequence[bytes]) -> int:
        """The payload length to reserve with `reserve_space` for these changes, which may need several frames."""
        length = sum(map(len, encoded))
        return HEAD_BYTES + length + length // CHANGES_BYTES_MAX * (frame_bytes(HEAD_BYTES) + ALIGNMENT_BYTES)

    def next_stored_at_ms(self) -> int:
        """The time stamp of the next frame; never decreases."""
        now = self.clock.now_ms()
        if now > self.stored_at_ms:
            self.stored_at_ms = now
        return self.stored_at_ms

    def _header(
        self,
        kind: FrameKind,
        *,
        payload: bytes = b"",
        flags: int = 0,
        item_count: int = 0,
        stored_at_ms: int | None = None,
    ) -> FrameHeader:
        return FrameHeader(
            kind=kind,
            position=self.appended_position,
            durable_below=self.durable_position,
            store_open=self.store_open,
            leader_epoch=self.epoch,
            producer_id=self.log_mark,
            stored_at_ms=self.next_stored_at_ms() if stored_at_ms is None else stored_at_ms,
            flags=flags,
            length=len(payload),
            payload_crc=crc32c(payload),
            item_count=item_count,
        )

    def _append(self, entry: FlushEntry, body: tuple[Buffer, ...]) -> None:
        header = entry.header
        body_bytes = header.length + header.prefix_length
        if self.active.is_reusable and may_resemble_frame(bytes(body[0]) if len(body) == 1 else b"".join(body)):
            self.active.is_reusable = False
        if padding := frame_bytes(body_bytes) - HEADER_BYTES - body_bytes:
            body = (*body, PADDING[padding])
        self._put(entry, (header.encoded(), *body))

    def _put(self, entry: FlushEntry, buffers: tuple[Buffer, ...], *, is_copy: bool = False) -> None:
        groups = self._groups
        if not groups or groups[-1].bytes >= self.settings.flush_bytes_max or groups[-1].is_copy is not is_copy:
            groups.append(FlushGroup(is_copy=is_copy))
        group = groups[-1]
        position, total = entry.header.position, entry.header.frame_bytes
        parts = group.parts
        if not parts or parts[-1].segment is not self.active:
            parts.append(SegmentPart(self.active, position))
        parts[-1].buffers.extend(buffers)
        group.entries.append(entry)
        group.bytes += total
        self.pending_bytes += total
        self.appended_position = group.end_position = position + total
        self._idle.clear()

    def seal_changes(self) -> None:
        """Put the waiting changes into one state frame."""
        pending = self._changes
        if not pending.changes:
            return
        self._changes = PendingChanges()
        payload = encode_changes(pending.encoded)
        header = self._header(FrameKind.STATE, payload=payload, item_count=len(pending.changes))
        self._append(FlushEntry(header, changes=tuple(pending.changes)), (payload,))
        self._groups[-1].waiters.extend(pending.waiters)
