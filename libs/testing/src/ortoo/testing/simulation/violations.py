"""Findings of a run: each names the promise that was broken."""

import asyncio
from dataclasses import dataclass

from ortoo.testing.simulation.kernel.event_loop import VirtualLoop

VIOLATIONS_MAX = 40
"""The number of findings to keep; later ones seldom add information."""


@dataclass(frozen=True, slots=True)
class Violation:
    """A broken promise."""

    promise: str
    """The broken promise: G1 to G13, or a rule by its name."""
    text: str
    time_s: float

    def __str__(self) -> str:
        return f"[{self.promise}] at {self.time_s:.3f} s: {self.text}"


class Violations:
    """The findings so far, in the order of time."""

    def __init__(self, loop: VirtualLoop) -> None:
        """Start empty."""
        self.all: list[Violation] = []
        self.some = asyncio.Event()
        """Set at the first finding: a run ends then, because one defect causes further ones."""
        self._loop = loop

    def add(self, promise: str, text: str) -> None:
        """Record a finding now."""
        self.some.set()
        if len(self.all) < VIOLATIONS_MAX:
            self.all.append(Violation(promise, text, self._loop.time()))

    def __bool__(self) -> bool:
        return bool(self.all)
