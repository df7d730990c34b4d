"""Frames of another replica's log: split, verified, and written to the same positions of this log."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ortoo.enode.changes.kinds import decode_changes
from ortoo.enode.log.appender import Appender
from ortoo.enode.log.checkpoint import decode_slice
from ortoo.enode.log.flushing.flush_group import FlushEntry
from ortoo.enode.log.frame import (
    HEADER_BYTES,
    BadFrame,
    FrameFlag,
    FrameHeader,
    FrameKind,
    body_problem,
    decode_header,
)


@dataclass(frozen=True, slots=True)
class FrameCopy:
    """A whole frame from another replica's log."""

    header: FrameHeader
    body: memoryview
    """Prefix and payload."""
    data: memoryview
    """All bytes of the frame in the log, with padding."""


def frames_in(data: bytes | memoryview, position: int) -> Iterator[FrameCopy]:
    """The frames of `data`, which lies at `position`. Errors: Unsupported, BadFrame (a frame is incomplete)."""
    view, at = memoryview(data), 0
    while at < len(view):
        header = decode_header(bytes(view[at : at + HEADER_BYTES]), position + at)
        body_at = at + HEADER_BYTES
        body = view[body_at : body_at + header.prefix_length + header.length]
        if problem := body_problem(header, body):
            raise BadFrame(problem)
        end = at + header.frame_bytes
        if end > len(view):
            raise BadFrame(f"the padding of the frame is missing: {len(view) - at} of {header.frame_bytes} bytes")
        yield FrameCopy(header, body, view[at:end])
        at = end


def whole_frames(data: bytes, position: int, limit: int) -> int:
    """Bytes of the whole frames at the start of `data` that begin below `limit`; `data` lies at `position`."""
    at = 0
    while position + at < limit and at + HEADER_BYTES <= len(data):
        header = decode_header(data[at : at + HEADER_BYTES], position + at)
        if at + header.frame_bytes > len(data):
            break
        at += header.frame_bytes
    return at


def make_entry(header: FrameHeader, body: bytes | memoryview) -> FlushEntry:
    """The entry to commit for a frame. Its batch has no records, because readers take them from the disk."""
    if header.kind == FrameKind.MESSAGES:
        changes = tuple(decode_changes(bytes(body[: header.prefix_length]))) if header.prefix_length else ()
        return FlushEntry(header, header.batch(b""), changes)
    if header.kind == FrameKind.STATE:
        return FlushEntry(header, changes=tuple(decode_changes(bytes(body))))
    if header.kind == FrameKind.CHECKPOINT:
        return FlushEntry(header, slice_at=decode_slice(bytes(body)).at(header.position))
    return FlushEntry(header)


async def append_copies(appender: Appender, frames: Sequence[FrameCopy]) -> None:
    """Accept frames of a leader and request their flush. A segment ends where the leader's segment ended.

    Errors: Overloaded (disk full), OSError, Unsupported. After an error, earlier frames of the call may be accepted,
    and are flushed.
    """
    try:
        for frame in frames:
            appender.check_disk()
            entry = make_entry(frame.header, frame.body)
            if frame.header.flags & FrameFlag.SEGMENT_END:
                # The next segment is allocated before the frame is accepted: without it the log cannot continue.
                spare = await appender.spares.take(appender.settings.segment_bytes, is_state=True)
                appender.append_copy(entry, frame.data)
                appender.end_segment(spare)
            else:
                appender.append_copy(entry, frame.data)
    finally:
        appender.request_flush()  # also for the frames that were accepted before an interruption
