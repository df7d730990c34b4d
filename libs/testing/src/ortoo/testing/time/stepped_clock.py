"""A wall clock that can be set, over a monotonic clock that cannot: what an operator or a bad time server does."""

import mmap
import struct
from pathlib import Path

from ortoo.common.process.clock import SystemClock

_OFFSET = struct.Struct("<q")


class SteppedClock(SystemClock):
    """The machine's time, and how far its wall clock is set off."""

    def __init__(self, offset_ms: int = 0) -> None:
        """Begin so far off."""
        self.offset_ms = offset_ms

    def now_ms(self) -> int:
        """Wall-clock milliseconds since 1970-01-01 UTC, as it is set now."""
        return super().now_ms() + self.offset_ms


class SharedClock(SystemClock):
    """The machine's time, set off by a number in a file, so that one process sets the clock of another."""

    def __init__(self, file: Path) -> None:
        """Follow the number in `file`, which is made when it is not there."""
        if not file.exists():
            file.write_bytes(bytes(_OFFSET.size))
        with file.open("r+b") as opened:
            self._shared = mmap.mmap(opened.fileno(), _OFFSET.size)

    @property
    def offset_ms(self) -> int:
        """How far the clock is set off."""
        return int(_OFFSET.unpack(self._shared[:])[0])

    def set_off(self, offset_ms: int) -> None:
        """Set it, here and in every process that follows the same file."""
        self._shared[:] = _OFFSET.pack(offset_ms)

    def now_ms(self) -> int:
        """Wall-clock milliseconds since 1970-01-01 UTC, as it is set now."""
        return super().now_ms() + self.offset_ms
