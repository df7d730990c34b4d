"""Frames of another member's log: taken apart, checked, and written to the same positions of this one."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ortoo.enode.changes.all import decode_changes
from ortoo.enode.log.appender import Appender
from ortoo.enode.log.checkpoint import decode_slice
from ortoo.enode.log.flushing.group import Entry
from ortoo.enode.log.frame import (
    HEADER_BYTES,
    BadFrame,
    Flag,
    FrameHeader,
    Kind,
    body_problem,
    decode_header,
)


@dataclass(frozen=True, slots=True)
class Frame:
    """A whole frame."""

    header: FrameHeader
    body: memoryview
    """Prefix and payload."""
    data: memoryview
    """All of it, padding included, as it lies in the log."""


def frames_in(data: bytes | memoryview, position: int) -> Iterator[Frame]:
    """The frames of `data`, which lies at `position`. Errors: BadFrame when it is not whole frames; Unsupported."""
    view, at = memoryview(data), 0
    while at < len(view):
        header = decode_header(bytes(view[at : at + HEADER_BYTES]), position + at)
        body_at = at + HEADER_BYTES
        body = view[body_at : body_at + header.prefix_length + header.length]
        if problem := body_problem(header, body):
            raise BadFrame(problem)
        end = at + header.frame_bytes
        if end > len(view):
            raise BadFrame(f"its padding is missing: {len(view) - at} of {header.frame_bytes} bytes")
        yield Frame(header, body, view[at:end])
        at = end


def whole_frames(data: bytes, position: int, limit: int) -> int:
    """How many bytes of `data`, which lies at `position`, are whole frames that begin below `limit`."""
    at = 0
    while position + at < limit and at + HEADER_BYTES <= len(data):
        header = decode_header(data[at : at + HEADER_BYTES], position + at)
        if at + header.frame_bytes > len(data):
            break
        at += header.frame_bytes
    return at


def entry_of(header: FrameHeader, body: bytes | memoryview) -> Entry:
    """What is to be done when a frame is committed. It has no batch in it: who reads that, reads it from the disk."""
    if header.kind == Kind.MESSAGES:
        changes = tuple(decode_changes(bytes(body[: header.prefix_length]))) if header.prefix_length else ()
        return Entry(header, header.batch(b""), changes)
    if header.kind == Kind.STATE:
        return Entry(header, changes=tuple(decode_changes(bytes(body))))
    if header.kind == Kind.CHECKPOINT:
        return Entry(header, slice_at=decode_slice(bytes(body)).at(header.position))
    return Entry(header)


async def append_copies(appender: Appender, frames: Sequence[Frame]) -> None:
    """Accept frames as they come from a leader; a segment ends where the leader's did. They are flushed by and by.

    Errors: Overloaded when the disk is full, OSError, Unsupported: then the frames before may be accepted.
    """
    for frame in frames:
        appender.check_alive()
        entry = entry_of(frame.header, frame.body)
        if frame.header.flags & Flag.SEGMENT_END:
            # The space is there before the frame is accepted, for behind it there is no other place to go on.
            spare = await appender.spares.take(appender.settings.segment_bytes, is_state=True)
            appender.append_copy(entry, frame.data)
            appender.end_segment(spare)
        else:
            appender.append_copy(entry, frame.data)
    appender.want_flush()
