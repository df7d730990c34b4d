"""The work of a piece of code, counted and not timed: executed instructions, and memory that it had at its peak."""

import sys
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any

NOISE = 1.2
"""The factor by which the work of the same call may differ, for example because of a longer number."""
NOISE_BYTES = 8_192


@dataclass(slots=True)
class WorkDone:
    """The work inside `count_work`. Loops show in the instructions, copies of large containers in the bytes."""

    instructions: int = 0
    peak_bytes: int = 0

    def is_at_most(self, other: "WorkDone") -> bool:
        """Whether this is not more work than `other`."""
        return (
            self.instructions <= NOISE * other.instructions
            and self.peak_bytes <= NOISE * other.peak_bytes + NOISE_BYTES
        )


@contextmanager
def count_work() -> Iterator[WorkDone]:
    """Count the work of this thread inside the block: functions called there, and tasks of the loop that run."""
    work = WorkDone()

    def in_frame(frame: FrameType, event: str, argument: Any) -> Any:
        if event == "opcode":
            work.instructions += 1
        return in_frame

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        frame.f_trace_opcodes = True
        frame.f_trace_lines = False
        return in_frame

    previous = sys.gettrace()
    tracemalloc.start()
    before_bytes, _ = tracemalloc.get_traced_memory()
    sys.settrace(trace)
    try:
        yield work
    finally:
        sys.settrace(previous)
        work.peak_bytes = tracemalloc.get_traced_memory()[1] - before_bytes
        tracemalloc.stop()
