"""Linearizable reads: an answer shows all that was acknowledged or seen before its request, and nothing is undone."""

from collections.abc import Mapping
from dataclasses import dataclass

from ortoo.testing.simulation.violations import Violations

Fact = tuple[str, ...]
"""The name of a value that only grows, such as ("end of queue", "1")."""
PROMISE = "reads are linearizable"


@dataclass(frozen=True, slots=True)
class ReadStart:
    """The values that were known when a read was requested. Its answer must show them."""

    known: Mapping[Fact, int]
    at_s: float


class ReadModel:
    """The values that clients know from acknowledged writes and from answered reads. Each value only grows.

    A later read that shows less was answered by a replica that lacks the change, or the change was undone.
    """

    def __init__(self, findings: Violations) -> None:
        """Start without any value."""
        self.count = 0
        """The number of values that answers showed."""
        self._findings = findings
        self._known: dict[Fact, int] = {}
        self._contents: dict[Fact, object] = {}

    def known(self, fact: Fact) -> int:
        """The value that every later read must reach; 0 if none is known."""
        return self._known.get(fact, 0)

    def acknowledged(self, fact: Fact, value: int) -> None:
        """A write of this value was acknowledged."""
        self._known[fact] = max(value, self.known(fact))

    def begin(self, at_s: float) -> ReadStart:
        """A read is requested now."""
        return ReadStart(dict(self._known), at_s)

    def seen(self, start: ReadStart, fact: Fact, value: int, by: str) -> None:
        """The answer of `by` to this read shows a value."""
        self.seen_at_most(start, fact, value, by)
        self.acknowledged(fact, value)

    def seen_at_most(self, start: ReadStart, fact: Fact, value: int, by: str) -> None:
        """The answer shows a value that is not greater than `value`, and may be smaller."""
        self.count += 1
        if value < (expected := start.known.get(fact, 0)):
            self._findings.add(
                PROMISE, f"{by} was asked at {start.at_s:.3f} s: {' '.join(fact)} is {value}, and was {expected} before"
            )

    def same(self, fact: Fact, content: object, by: str) -> None:
        """The answer of `by` shows content that never changes, such as a batch at its offset."""
        self.count += 1
        if content != self._contents.setdefault(fact, content):
            self._findings.add(PROMISE, f"{by} shows another {' '.join(fact)} than an earlier answer")
