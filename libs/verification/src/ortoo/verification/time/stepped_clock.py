"""Clocks that a test sets: the monotonic one, or the wall clock alone, as an operator or a bad time server does."""

import mmap
import struct
from pathlib import Path

from ortoo.common.process.clock import SystemClock

_OFFSET = struct.Struct("<q")


class SetClock(SystemClock):
    """A monotonic clock that moves only when a test sets it."""

    now_s = 0.0

    def monotonic_s(self) -> float:
        """The time that was set."""
        return self.now_s


class SteppedClock(SystemClock):
    """The machine's time with an offset of its wall clock."""

    def __init__(self, offset_ms: int = 0) -> None:
        """Begin with this offset."""
        self.offset_ms = offset_ms

    def now_ms(self) -> int:
        """Wall-clock milliseconds since 1970-01-01 UTC, with the offset."""
        return super().now_ms() + self.offset_ms


class SharedClock(SystemClock):
    """The machine's time with an offset from a file, so that one process sets the clock of another."""

    def __init__(self, file: Path) -> None:
        """Use the offset in `file`, which is created when it is missing."""
        if not file.exists():
            file.write_bytes(bytes(_OFFSET.size))
        with file.open("r+b") as opened:
            self._shared = mmap.mmap(opened.fileno(), _OFFSET.size)

    @property
    def offset_ms(self) -> int:
        """The offset of the clock."""
        return int(_OFFSET.unpack(self._shared[:])[0])

    def set_off(self, offset_ms: int) -> None:
        """Set the offset, here and in every process that uses the same file."""
        self._shared[:] = _OFFSET.pack(offset_ms)

    def now_ms(self) -> int:
        """Wall-clock milliseconds since 1970-01-01 UTC, with the offset."""
        return super().now_ms() + self.offset_ms
