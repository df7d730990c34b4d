"""Planted: acknowledged data that are not on the disk, or are lost when they are read again."""

from typing import Any

from ortoo.enode.log import appender, segment
from ortoo.enode.log.flushing import flush_group
from ortoo.enode.log.flushing.flush_group import FlushGroup
from ortoo.enode.recovery import only_copy
from ortoo.enode.store import checkpoints

recovery: Any = only_copy
"""Names that the module `only_copy` imported are replaced there."""
writing: Any = checkpoints


def acknowledge_before_sync() -> None:
    """G1: a group of frames is written and reported as durable without a sync."""

    def write(self: FlushGroup) -> None:
        for part in self.parts:
            part.segment.install()
            part.segment.writer.write(part.position - part.segment.base, part.buffers)

    flush_group.FlushGroup.write = write  # type: ignore[method-assign]


def acknowledge_when_the_write_begins() -> None:
    """G1: senders are answered when their group is passed to the disk, not when it is durable."""
    hand_over = appender.Appender._submit

    def early(self: Any) -> None:
        hand_over(self)
        for waiter, answer in (one for group in self._writing for one in group.waiters):
            if not waiter.done():
                waiter.set_result(answer)

    appender.Appender._submit = early  # type: ignore[method-assign]


def fold_beyond_durable() -> None:
    """G10: a checkpoint claims to cover changes that are not durable yet."""
    real = writing.CheckpointSlice

    def slice_of(checkpoint_id: int, number: int, total: int, fold_from: int, durable: int, changes: Any) -> Any:
        return real(checkpoint_id, number, total, checkpoint_id + 64 * 64, durable, changes)

    writing.CheckpointSlice = slice_of


def segment_name_not_synced() -> None:
    """G1: a new segment's name is not made durable."""

    def install(self: segment.Segment) -> None:
        if self.source is not None:
            name = self._reading.path = self.folder / segment.segment_name(self.base)
            self.files.disk.rename(self.source, name)
            self.source = None

    segment.Segment.install = install  # type: ignore[method-assign]


def cut_one_frame_too_many() -> None:
    """G1: recovery treats the last whole frame as torn."""
    find_cut = recovery.find_log_end

    def cut(found: Any, read: Any, base: int, limit: int) -> int:
        end: int = find_cut(found, read, base, limit)
        return max([rows.positions[-1] for rows in found.rows.values() if rows.positions[-1] < end], default=end)

    recovery.find_log_end = cut


def believe_torn_frames() -> None:
    """G12: recovery checks headers only, and serves a frame whose body never arrived."""

    def cut(found: Any, read: Any, base: int, limit: int) -> int:
        return int(found.end_position)

    recovery.find_log_end = cut


def a_failed_sync_is_believed() -> None:
    """G1: data read back after a failed sync are trusted without being written again."""

    def rewrite(segment: Any, position: int, end: int) -> None:
        """Trust the page cache."""

    recovery.rewrite_unsynced = rewrite


def give_offsets_again() -> None:
    """G3: after a crash a queue reuses an offset."""
    settle = recovery.set_queue_ranges

    def settled(recovered: Any) -> None:
        settle(recovered)
        if not recovered.was_clean:
            for queue in recovered.catalog.queues.values():
                queue.next_offset = queue.end_offset = max(queue.begin_offset, queue.end_offset - 1)

    recovery.set_queue_ranges = settled
