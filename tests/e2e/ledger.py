"""The messages sent, acknowledged, delivered and stored in one run, checked against the guarantees."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

Place = tuple[str, int]
"""A queue of the run's only topic: enode and queue id."""


@dataclass(slots=True)
class Ledger:
    """The records of one run. Messages are identified by their bodies, which are all different."""

    sent: int = 0
    acknowledged: dict[bytes, tuple[Place, int]] = field(default_factory=dict)
    """Body to the place in the receipt."""
    unknown: set[bytes] = field(default_factory=set)
    """Bodies whose sending failed: they may be stored or not."""
    deliveries: Counter[bytes] = field(default_factory=Counter)
    delivered_at: dict[tuple[Place, int], bytes] = field(default_factory=dict)
    committed: dict[Place, int] = field(default_factory=dict)
    """The offset of each queue that the group had durably acknowledged at the last look."""
    faults: list[str] = field(default_factory=list)
    """The broken guarantees, as text."""

    def stored_at(self, body: bytes, place: Place, offset: int) -> None:
        """A producer got a receipt."""
        self.acknowledged[body] = (place, offset)

    def received(self, place: Place, offset: int, body: bytes) -> None:
        """A consumer got a message (G2, G3)."""
        self.deliveries[body] += 1
        if self.delivered_at.setdefault((place, offset), body) != body:
            self.faults.append(f"{place} offset {offset} was delivered with two different bodies")
        if offset < self.committed.get(place, 0):
            self.faults.append(
                f"{place} offset {offset} came again though {self.committed[place]} was durably acknowledged"
            )

    def offsets_are(self, committed: Mapping[Place, int]) -> None:
        """Record the group's current offsets; they never go back (G10)."""
        for place, offset in committed.items():
            if offset < self.committed.get(place, 0):
                self.faults.append(f"the offset of {place} went back from {self.committed[place]} to {offset}")
            self.committed[place] = offset

    @property
    def all_delivered(self) -> bool:
        """Whether every acknowledged message has been delivered."""
        return not self.missing()

    def missing(self) -> list[bytes]:
        """Acknowledged messages that were not delivered yet."""
        return [body for body in self.acknowledged if body not in self.deliveries]

    def audit(self, stored: Mapping[Place, Sequence[tuple[int, bytes]]]) -> None:
        """Compare with all stored messages: (offset, body) of each queue, in order (G1, G3, G4)."""
        copies: Counter[bytes] = Counter()
        where: dict[tuple[Place, int], bytes] = {}
        for place, messages in stored.items():
            offsets = [offset for offset, _ in messages]
            if offsets != list(range(len(offsets))):
                self.faults.append(f"the offsets of {place} are not dense")
            for offset, body in messages:
                copies[body] += 1
                where[place, offset] = body
        for body, (place, offset) in self.acknowledged.items():
            if where.get((place, offset)) != body:
                self.faults.append(f"{body[:24]!r} was acknowledged at {place} offset {offset} and is not there")
        twice = [body for body, count in copies.items() if count > 1]
        if twice:
            self.faults.append(f"{len(twice)} messages are stored twice, such as {twice[0][:24]!r}")
        for key, body in self.delivered_at.items():
            if where.get(key) != body:
                self.faults.append(f"{key} was delivered as {body[:24]!r} and is not stored so")
        for body in self.missing():
            self.faults.append(f"{body[:24]!r} was acknowledged and never delivered")
        strange = copies.keys() - self.acknowledged.keys() - self.unknown
        if strange:
            self.faults.append(f"{len(strange)} stored messages were never sent, such as {next(iter(strange))[:24]!r}")

    def summary(self) -> str:
        """One line."""
        again = self.deliveries.total() - len(self.deliveries)
        return (
            f"{self.sent} sent, {len(self.acknowledged)} acknowledged, {len(self.unknown)} unknown, "
            f"{len(self.deliveries)} delivered, {again} delivered again, {len(self.faults)} promises broken"
        )
