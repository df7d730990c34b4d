"""Every message that a client sent, and its outcome as reported to the client."""

import enum
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from ortoo.client import Queue
from ortoo.common.errors import Internal, OrtooError, Unavailable

SEPARATOR = b"|"


class SendOutcome(enum.Enum):
    """The outcome as the sender knows it."""

    UNKNOWN = "unknown"
    """No answer, or one that leaves the outcome open: it may be stored or not."""
    STORED = "stored"
    """Acknowledged."""
    REFUSED = "refused"
    """Refused: it must not be stored."""


@dataclass(slots=True, eq=False)
class TrackedMessage:
    """One message."""

    key: str
    """The message's key, unique in this run; its body begins with it."""
    topic: str
    body: bytes
    started_at_s: float
    is_deduplicated: bool = True
    """Whether the protocol promises that it is stored once at most."""
    outcome: SendOutcome = SendOutcome.UNKNOWN
    answered_at_s: float = 0.0
    queue: Queue | None = None
    offset: int = -1
    hidden: bool = False
    """Whether it must stay invisible: recalled, or rolled back."""
    due_at_ms: int = 0
    """Invisible before this time of the wall clock."""
    message_group: str = ""
    number: int = 0
    """Its place in the order of its message group."""
    optional: bool = False
    """Whether its delivery is not required: its outcome is unknown, or another message stands for it."""


class SentMessages:
    """The messages of a run."""

    def __init__(self) -> None:
        """Start empty."""
        self._by_key: dict[str, TrackedMessage] = {}
        self._by_topic: dict[str, list[TrackedMessage]] = {}

    def begin(self, topic: str, key: str, now_s: float, *, filler: int = 0) -> TrackedMessage:
        """A message is about to be sent; its body is derived from its key."""
        sent = TrackedMessage(key, topic, body_of(key, filler), now_s)
        self._by_key[key] = sent
        self._by_topic.setdefault(topic, []).append(sent)
        return sent

    def stored(self, sent: TrackedMessage, now_s: float, queue: Queue | None, offset: int) -> None:
        """It was acknowledged with its position."""
        sent.outcome, sent.answered_at_s, sent.queue, sent.offset = SendOutcome.STORED, now_s, queue, offset

    def failed(self, sent: TrackedMessage, now_s: float, error: OrtooError) -> None:
        """Its sender got an error."""
        sent.answered_at_s = now_s
        if not isinstance(error, Unavailable | Internal):
            sent.outcome = SendOutcome.REFUSED

    def refused(self, sent: TrackedMessage, now_s: float) -> None:
        """It was refused: it must not be stored."""
        sent.outcome, sent.answered_at_s = SendOutcome.REFUSED, now_s

    def of(self, key: str) -> TrackedMessage | None:
        """The message with this key."""
        return self._by_key.get(key)

    def in_topic(self, topic: str) -> list[TrackedMessage]:
        """The messages sent to a topic, in order."""
        return self._by_topic.get(topic, [])

    def forget_topic(self, topic: str) -> None:
        """The topic was deleted: its messages are no longer expected."""
        for sent in self.in_topic(topic):
            sent.optional = True

    def __iter__(self) -> Iterator[TrackedMessage]:
        return iter(self._by_key.values())

    def __len__(self) -> int:
        return len(self._by_key)


def body_of(key: str, filler: int) -> bytes:
    """The body of a message: its key, and bytes derived from the key."""
    seed = zlib.crc32(key.encode()).to_bytes(4, "little")
    return key.encode() + SEPARATOR + seed * (filler // 4 + 1)


def key_of(body: bytes) -> str | None:
    """The key of a body, if no byte of it changed; None if it is not ours."""
    head, separator, rest = body.partition(SEPARATOR)
    if not separator or len(rest) % 4 or not rest:
        return None
    seed = zlib.crc32(head).to_bytes(4, "little")
    return head.decode() if rest == seed * (len(rest) // 4) else None


def keys(messages: Iterable[TrackedMessage], most: int = 5) -> str:
    """The keys of a few messages as text."""
    named = [one.key for one in messages]
    return ", ".join(named[:most]) + (f" and {len(named) - most} more" if len(named) > most else "")
