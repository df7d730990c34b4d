"""Delayed messages on a time line: the number that is due in each step of time."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

STEPS_S = (1, 5, 15, 60, 300, 900, 3_600, 14_400, 43_200, 86_400, 604_800)
"""The possible steps."""
BARS_MAX = 48
WIDTH, HEIGHT = 960, 80
"""The size of the picture, in units that scale with its width."""


@dataclass(frozen=True, slots=True)
class Bar:
    """The messages that are due in one step."""

    from_ms: int
    count: int
    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True, slots=True)
class TimeLine:
    """The steps that have messages, from the first due time to the last one."""

    bars: Sequence[Bar]
    step_ms: int
    total: int
    width: int = WIDTH
    height: int = HEIGHT

    @property
    def largest(self) -> Bar:
        """The first step with most messages."""
        return max(self.bars, key=lambda one: one.count)


def time_line(due_ms: Sequence[int]) -> TimeLine | None:
    """The time line of messages with these due times, sorted; None without messages."""
    if not due_ms:
        return None
    step_ms = next(
        (step_s * 1000 for step_s in STEPS_S if due_ms[-1] // 1000 // step_s - due_ms[0] // 1000 // step_s < BARS_MAX),
        (due_ms[-1] - due_ms[0]) // (BARS_MAX - 1) + 1,
    )
    first = due_ms[0] // step_ms
    counts = Counter(one // step_ms - first for one in due_ms)
    slots, most = max(counts) + 1, max(counts.values())
    width = WIDTH / max(slots, 8)
    bars = []
    for slot, count in sorted(counts.items()):
        height = max(2.0, count / most * HEIGHT)
        bars.append(Bar((first + slot) * step_ms, count, slot * width, HEIGHT - height, width * 0.85, height))
    return TimeLine(bars, step_ms, len(due_ms))
