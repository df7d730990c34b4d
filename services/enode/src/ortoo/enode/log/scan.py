"""Walks along the frames of a segment, and finds the next frame behind damaged bytes."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from ortoo.common.errors import Unsupported
from ortoo.enode.log.frame import (
    ALIGNMENT_BYTES,
    HEADER_BYTES,
    MAGIC_BYTES,
    POSITION_AT,
    BadFrame,
    FrameHeader,
    StaleFrame,
    body_problem,
    decode_header,
)

WINDOW_BYTES = 256 << 10
Read = Callable[[int, int], bytes]
"""(position, length) to bytes of the log; fewer at the end of the file."""


@dataclass(frozen=True, slots=True)
class Hole:
    """Bytes from `position` on that are no frame."""

    position: int
    length: int
    reason: str

    @property
    def end_position(self) -> int:
        """The position of the next frame, or the end of the scan."""
        return self.position + self.length


@dataclass(slots=True, eq=False)
class ReadWindow:
    """A stretch of the log in memory, so that small frames do not cost a read each."""

    read: Read
    end: int
    """Nothing is read beyond it."""
    _start: int = 0
    _data: bytes = b""

    def bytes_at(self, position: int, length: int) -> bytes:
        """Bytes from `position`; fewer at the end."""
        at = position - self._start
        if at < 0 or at + length > len(self._data):
            wanted = min(max(length, WINDOW_BYTES), self.end - position)
            self._data = self.read(position, wanted) if wanted > 0 else b""
            self._start, at = position, 0
        return self._data[at : at + length]

    def find_magic(self, position: int, *, is_own: bool = False) -> int:
        """The next aligned position from `position` on with a frame's magic number; -1 if there is none.

        With `is_own`, headers of another position are passed over. A reused file may have very many of them.
        """
        while position < self.end:
            is_here = self._start <= position < self._start + len(self._data)
            if not is_here and not self.bytes_at(position, ALIGNMENT_BYTES):
                return -1
            at = self._data.find(MAGIC_BYTES, position - self._start)
            while at >= 0 and ((self._start + at) % ALIGNMENT_BYTES or (is_own and self._is_stale(at))):
                at = self._data.find(MAGIC_BYTES, at + 1)
            if at >= 0:
                return self._start + at
            position = max(position + 1, (self._start + len(self._data)) // ALIGNMENT_BYTES * ALIGNMENT_BYTES)
            if position % ALIGNMENT_BYTES:
                position += ALIGNMENT_BYTES - position % ALIGNMENT_BYTES
        return -1

    def _is_stale(self, at: int) -> bool:
        found = self._data[at + POSITION_AT : at + POSITION_AT + 8]
        return len(found) == 8 and int.from_bytes(found, "little") != self._start + at


def walk(
    read: Read, start: int, end: int, *, bodies_from: int | None = None, window: ReadWindow | None = None
) -> Iterator[FrameHeader | Hole]:
    """All frames from `start` to `end`, and between them the holes, whose bytes are no frames.

    All headers are checked, and the bodies of the frames from `bodies_from` on (None = no bodies). A frame with a bad
    body is a hole. A caller that also reads bodies passes its own `window`, through which headers and bodies are read.
    A stale frame is a hole, too: an earlier frame has a later epoch or opening.
    Errors: Unsupported for whole frames of another version.
    """
    window = window or ReadWindow(read, end)
    position = start
    order = (0, 0)
    hole_at, reason = -1, ""
    while 0 <= position < end:
        resume = position + ALIGNMENT_BYTES
        try:
            header = decode_header(window.bytes_at(position, HEADER_BYTES), position)
            if header.order < order:
                raise BadFrame(f"a stale frame of (epoch, opening) {header.order} after a frame of {order}")
            if position + HEADER_BYTES + header.prefix_length + header.length > end:  # its padding may be missing
                raise BadFrame(f"the frame would end at {header.end_position}, beyond {end}")
            if bodies_from is not None and position >= bodies_from:
                resume = header.end_position
                read_body(window.bytes_at, header)
        except BadFrame as problem:
            if hole_at < 0:
                hole_at, reason = position, str(problem)
            position = window.find_magic(resume, is_own=True)
            continue
        if hole_at >= 0:
            yield Hole(hole_at, position - hole_at, reason)
            hole_at = -1
        order = header.order
        yield header
        position = header.end_position
    if hole_at >= 0:
        yield Hole(hole_at, end - hole_at, reason)


def find_stale_frame(data: bytes, position: int) -> int:
    """The position of the first whole header in `data` that belongs to another position; -1 if there is none.

    `data` lies at `position`.
    """
    base = position
    window = ReadWindow(lambda at, length: data[at - base : at - base + length], position + len(data))
    while (position := window.find_magic(position)) >= 0:
        try:
            decode_header(window.bytes_at(position, HEADER_BYTES), position)
        except StaleFrame:
            return position
        except (BadFrame, Unsupported):
            pass
        position += ALIGNMENT_BYTES
    return -1


def read_body(read: Read, header: FrameHeader) -> bytes:
    """Prefix and payload of a frame. Errors: BadFrame when they do not match the header."""
    body = read(header.position + HEADER_BYTES, header.prefix_length + header.length)
    if problem := body_problem(header, body):
        raise BadFrame(problem, header.frame_bytes)
    return body


def read_frame(read: Read, position: int) -> tuple[FrameHeader, bytes]:
    """Header, and prefix and payload, of the frame at a position. Errors: BadFrame, Unsupported."""
    header = decode_header(read(position, HEADER_BYTES), position)
    return header, read_body(read, header)
