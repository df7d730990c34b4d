"""Committed offsets, which no group falls behind unless an operator moves it."""

from collections.abc import Callable

from ortoo.client import Queue
from ortoo.testing.simulation.violations import Violations


class CommittedOffsets:
    """For each group and queue the highest offset that a server called durable."""

    def __init__(
        self, findings: Violations, now_s: Callable[[], float], may_have_forgotten: Callable[[str], bool]
    ) -> None:
        """Start empty. `may_have_forgotten`: whether damage may have cost an enode its records about groups."""
        self._findings = findings
        self._now_s = now_s
        self._may_have_forgotten = may_have_forgotten
        self._durable: dict[tuple[str, Queue], tuple[int, float]] = {}
        self._moves: dict[str, int] = {}

    def durable(self, group: str, queue: Queue, offset: int) -> None:
        """A server reported this offset as durable."""
        known, _ = self._durable.get((group, queue), (-1, 0.0))
        if offset > known:
            self._durable[group, queue] = (offset, self._now_s())

    def moved(self, group: str) -> None:
        """An operator moves the group, or tries to: earlier offsets no longer count."""
        self._moves[group] = self.moves(group) + 1
        for key in [key for key in self._durable if key[0] == group]:
            del self._durable[key]

    def moves(self, group: str) -> int:
        """The number of moves of the group."""
        return self._moves.get(group, 0)

    def at(self, group: str, queue: Queue, before_s: float) -> int:
        """The offset durable before this time; 0 if there is none, or if damage may have lost it."""
        if self._may_have_forgotten(queue.enode):
            return 0
        offset, at_s = self._durable.get((group, queue), (0, 0.0))
        return offset if at_s < before_s else 0

    def read(self, group: str, queue: Queue, offset: int, asked_at_s: float) -> None:
        """A server reported the committed offset for a request of that time; -1 = none."""
        known = self.at(group, queue, asked_at_s)
        if max(offset, 0) < known:
            self._findings.add("G10", f"{group} had committed {known} in {queue}, and {offset} is left of it")

    def began(self, group: str, queue: Queue, offset: int, opened_at_s: float) -> None:
        """A session opened at that time received its first message at this offset."""
        known = self.at(group, queue, opened_at_s)
        if offset < known:
            self._findings.add("G10", f"{group} had committed {known} in {queue}, and receives {offset} again")
