"""What a run found wrong: each with the promise that was broken."""

import asyncio
from dataclasses import dataclass

from ortoo.testing.simulation.kernel.event_loop import VirtualLoop

FINDINGS_MAX = 40
"""So many are kept; what comes after the first few seldom says anything new."""


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that must not be."""

    promise: str
    """Which promise is broken: G1 to G13, or a rule by its name."""
    text: str
    time_s: float

    def __str__(self) -> str:
        return f"[{self.promise}] at {self.time_s:.3f} s: {self.text}"


class Findings:
    """What was found so far, in the order of time."""

    def __init__(self, loop: VirtualLoop) -> None:
        """Nothing yet."""
        self.all: list[Finding] = []
        self.some = asyncio.Event()
        """Set when there is one: a run ends then, since what is wrong leads to more that is."""
        self._loop = loop

    def add(self, promise: str, text: str) -> None:
        """Something is wrong now."""
        self.some.set()
        if len(self.all) < FINDINGS_MAX:
            self.all.append(Finding(promise, text, self._loop.time()))

    def __bool__(self) -> bool:
        return bool(self.all)
