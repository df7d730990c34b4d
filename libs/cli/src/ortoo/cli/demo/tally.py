"""Sent and received messages, compared by content; without I/O."""

import asyncio
from collections import Counter
from dataclasses import dataclass
from hashlib import blake2b

MessagePlace = tuple[str, str, int, int]
"""Topic, enode, queue id and offset of a stored message."""


def content_hash(body: bytes, tag: str | None, keys: tuple[str, ...]) -> bytes:
    """A 16-byte hash of a message's body, tag and keys."""
    return blake2b(b"\0".join((body, (tag or "").encode(), *(k.encode() for k in keys))), digest_size=16).digest()


@dataclass(frozen=True, slots=True)
class GroupResult:
    """One group's deliveries compared with the expected ones."""

    group: str
    expected: int
    delivered: int
    duplicates: int
    lost: int
    unexpected: int

    @property
    def is_right(self) -> bool:
        """Whether the group received exactly the expected messages."""
        return self.lost == 0 and self.unexpected == 0 and self.delivered == self.expected


class GroupTally:
    """The messages that one group received. Duplicates are detected by the stored position."""

    def __init__(self, group: str) -> None:
        """Start empty."""
        self.group = group
        self.duplicates = 0
        self.changed = asyncio.Event()
        """Set by the consumers after each batch."""
        self._places: set[MessagePlace] = set()
        self._contents: Counter[bytes] = Counter()

    @property
    def delivered(self) -> int:
        """Number of distinct stored messages that have arrived."""
        return len(self._places)

    def received(self, place: MessagePlace, content: bytes) -> None:
        """Count one delivery of the message stored at `place`; `content` is the message's content hash."""
        if place in self._places:
            self.duplicates += 1
            return
        self._places.add(place)
        self._contents[content] += 1

    def result(self, expected: Counter[bytes]) -> GroupResult:
        """Compare the delivered messages with the `expected` number of messages of each content hash."""
        return GroupResult(
            group=self.group,
            expected=expected.total(),
            delivered=self.delivered,
            duplicates=self.duplicates,
            lost=(expected - self._contents).total(),
            unexpected=(self._contents - expected).total(),
        )
