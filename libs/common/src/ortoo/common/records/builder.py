"""Collecting messages one by one until a batch is full.

builder = BatchBuilder()
if builder.add(message) is None:              # it does not fit any more
    sealed = encode(builder.take(), now_ms=clock.now_ms())
    builder.add(message)                      # an empty builder takes any message

for part in split_messages(messages):         # all of them are there already
    sealed = encode(part, now_ms=clock.now_ms())
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate

from ortoo.common.records.batch import MESSAGE_BYTES, encoded_bytes_bound
from ortoo.common.records.message import NO_RARE_FIELDS, Message, RareFields
from ortoo.common.records.sealed_batch import MESSAGES_MAX, RECORDS_BYTES_MAX

_MESSAGE_BYTES = 40
"""An upper bound of a message's size besides body, tag and keys."""
_BATCH_BYTES = 1024
"""An upper bound of the size of a batch without messages."""


class BatchBuilder:
    """The messages of one batch: never more than fit, never delayed and undelayed ones together."""

    __slots__ = ("_bytes_max", "_messages", "_messages_max", "_sort", "size_bytes")

    def __init__(self, bytes_max: int = RECORDS_BYTES_MAX, messages_max: int = MESSAGES_MAX) -> None:
        """Make batches of at most `bytes_max` bytes as stored and `messages_max` messages."""
        self._bytes_max = min(bytes_max, RECORDS_BYTES_MAX)
        self._messages_max = min(messages_max, MESSAGES_MAX)
        self._messages: list[Message | bytes] = []
        self.size_bytes = _BATCH_BYTES
        """The maximum size of the batch, uncompressed."""
        self._sort = _USUAL

    def __len__(self) -> int:
        return len(self._messages)

    def add(self, message: Message | bytes) -> int | None:
        """Take a message or a bare body; returns its row, or None if it belongs into the next batch.

        An empty builder takes any message.
        """
        if isinstance(message, bytes):
            size, sort = self.size_bytes + len(message) + MESSAGE_BYTES, _USUAL
        else:
            size, sort = self.size_bytes + encoded_bytes_bound(message), _sort(message.rare)
        messages = self._messages
        row = len(messages)
        if not row:
            self._sort = sort
        elif size > self._bytes_max or sort != self._sort or row >= self._messages_max:
            return None
        messages.append(message)
        self.size_bytes = size
        return row

    def extend(self, messages: Sequence[Message] | Sequence[bytes]) -> int:
        """Take as many from the front of `messages` as fit, and return their number; none with rare fields are taken.

        The messages are all of one type; a bare body stands for a message that has nothing else. Their size is computed
        in bulk from the longest tag and key, which costs a tenth of a computation for each message.
        """
        messages = messages[: self._messages_max - len(self._messages)]
        if not messages or (self._messages and self._sort != _USUAL):
            return 0
        if type(messages[0]) is bytes:
            sizes, extra = list(map(len, messages)), _MESSAGE_BYTES  # type: ignore[arg-type]
        else:
            messages = _usual(messages)  # type: ignore[arg-type]
            if not messages:
                return 0
            sizes, extra = [len(message.body) for message in messages], _extra_bytes(messages)
        count, total = len(sizes), sum(sizes) + extra * len(sizes)
        room = self._bytes_max - self.size_bytes
        if total > room:
            ends = list(accumulate(sizes))
            count = bisect_right([end + extra * row for row, end in enumerate(ends, 1)], room)
            if not count and not self._messages:
                count = 1
            total = ends[count - 1] + extra * count if count else 0
        if count:
            self._messages += messages[:count]
            self.size_bytes += total
            self._sort = _USUAL
        return count

    def take(self) -> list[Message | bytes]:
        """Return the taken messages, unchecked, and start an empty batch; a bare body is returned as it was."""
        messages, self._messages, self.size_bytes = self._messages, [], _BATCH_BYTES
        return messages


def split_messages(messages: Sequence[Message]) -> Iterator[list[Message]]:
    """Cut messages, in order, into runs that each fit into one batch; reads every message."""
    builder = BatchBuilder()
    for message in messages:
        if builder.add(message) is None:
            yield builder.take()  # type: ignore[misc]  # no bare body was added
            builder.add(message)
    if builder:
        yield builder.take()  # type: ignore[misc]


def _sort(rare: RareFields) -> int:
    """Messages of the same sort may share a batch: either all have a deliver-at, or a priority, or none."""
    if rare is NO_RARE_FIELDS:
        return _USUAL
    return (rare.deliver_at_ms is not None) + 2 * (rare.priority is not None)


def _usual(messages: Sequence[Message]) -> Sequence[Message]:
    """The messages at the front that have no rare fields."""
    rares = [message.rare for message in messages]
    if rares.count(NO_RARE_FIELDS) == len(rares):
        return messages
    return messages[: next(at for at, rare in enumerate(rares) if rare is not NO_RARE_FIELDS)]


def _extra_bytes(messages: Sequence[Message]) -> int:
    """The maximum size of a message besides its body."""
    tags = {message.tag for message in messages}
    keys = [message.keys for message in messages if message.keys]
    longest_tag = max([len(tag) for tag in tags if tag], default=0)
    longest_keys = max([sum([4 * len(key) + 4 for key in several]) for several in keys], default=0)
    return _MESSAGE_BYTES + 4 * longest_tag + longest_keys


_USUAL = 0
