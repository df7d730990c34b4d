"""Collecting messages one by one until a batch is full.

builder = BatchBuilder()
if not builder.add(message):                  # it does not fit any more
    sealed = builder.seal(now_ms=clock.now_ms())
    builder.add(message)                      # an empty builder takes any message
"""

from ortoo.common.compression import Codec
from ortoo.common.errors import Invalid
from ortoo.common.message import NO_RARE_FIELDS, Message
from ortoo.common.record_batch import encode, encoded_bytes_bound
from ortoo.common.sealed_batch import MESSAGES_MAX, RECORDS_BYTES_MAX, SealedBatch

_BATCH_BYTES = 1024
"""Bytes that a batch costs by itself, generously."""


class BatchBuilder:
    """Messages on their way into one batch: never more than fit, never delayed and undelayed ones together."""

    __slots__ = ("_bytes", "_bytes_max", "_messages", "_messages_max", "_sort")

    def __init__(self, bytes_max: int = RECORDS_BYTES_MAX, messages_max: int = MESSAGES_MAX) -> None:
        """Make batches of at most `bytes_max` bytes as stored and `messages_max` messages."""
        self._bytes_max = min(bytes_max, RECORDS_BYTES_MAX)
        self._messages_max = min(messages_max, MESSAGES_MAX)
        self._messages: list[Message] = []
        self._bytes = _BATCH_BYTES
        self._sort = (False, False)

    def __len__(self) -> int:
        return len(self._messages)

    @property
    def size_bytes(self) -> int:
        """How many bytes the batch has at most, uncompressed."""
        return self._bytes

    @property
    def is_full(self) -> bool:
        """Whether as many messages are in as there may be."""
        return len(self._messages) >= self._messages_max

    def add(self, message: Message) -> bool:
        """Take a message; False, and nothing taken, if it belongs into the next batch. An empty builder takes any."""
        cost = encoded_bytes_bound(message)
        rare = message.rare
        sort = _USUAL if rare is NO_RARE_FIELDS else (rare.deliver_at_ms is not None, rare.priority is not None)
        if not self._messages:
            self._sort = sort
        elif sort != self._sort or self._bytes + cost > self._bytes_max or len(self._messages) >= self._messages_max:
            return False
        self._messages.append(message)
        self._bytes += cost
        return True

    def seal(self, *, now_ms: int, codec: Codec = Codec.NONE) -> SealedBatch:
        """Encode what was taken and start anew. Raises Invalid, and keeps nothing, if a message breaks a limit."""
        messages, self._messages, self._bytes = self._messages, [], _BATCH_BYTES
        if not messages:
            raise Invalid("no messages; add one first", field="messages")
        return encode(messages, now_ms=now_ms, codec=codec)


_USUAL = (False, False)
