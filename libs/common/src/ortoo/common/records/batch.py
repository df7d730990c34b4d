"""Record batches: messages in columns, encoded once by their producer and never re-encoded.

    sealed = encode([Message(b"hello", "greeting", ("k1",))], now_ms=clock.now_ms())
    sealed = encode(bodies, now_ms=clock.now_ms())         # without Message objects

    for part in split_messages(messages):                  # any number
        encode(part, now_ms=...)

    builder = BatchBuilder()                               # one by one, until a batch is full
    if builder.add(message) is None:                       # it does not fit any more
        sealed = encode(*builder.take(), now_ms=...)
        builder.add(message)                               # an empty builder takes any message

    view = open_batch(sealed)                              # see view.py
    list(view)

`encode` is deterministic: the same messages give the same bytes. docs/formats/record-batch.md describes the bytes.
"""

import struct
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import Any, Final

from ortoo.common.errors import Invalid
from ortoo.common.records import text_rules
from ortoo.common.records.columns import (
    DELIVER_AT,
    KEYS,
    MESSAGE_COLUMNS,
    RARE_COLUMNS,
    ROW_BYTES,
    TAG,
    Layout,
    MessageColumn,
    Presence,
)
from ortoo.common.records.compression import Codec
from ortoo.common.records.message import BODY_BYTES_MAX, Message, check_body, check_parts
from ortoo.common.records.message_fields import NO_RARE_FIELDS, RareFields, exclusive_columns
from ortoo.common.records.sealed_batch import (
    BODY_INFLATED_BYTES_MAX,
    MESSAGES_MAX,
    RECORDS_BYTES_MAX,
    SealedBatch,
    crc32c,
)
from ortoo.common.records.view import RecordBatchView, open_batch
from ortoo.common.records.writer import batch_bytes, offsets_buffer, times_buffer, write_column

__all__ = [
    "BATCH_BYTES",
    "EMPTY_BYTES",
    "MESSAGE_BYTES",
    "BatchBuilder",
    "Codec",
    "Message",
    "RecordBatchView",
    "SealedBatch",
    "batch_bytes_bound",
    "encode",
    "encoded_bytes_bound",
    "open_batch",
    "split_messages",
]

MESSAGE_BYTES: Final = 28
"""Maximum size of a message's offsets, born-at and tag code, besides its body and texts."""
_EXTENDED_BYTES: Final = 40
"""The same for messages that are taken in bulk, whose tag and keys are measured together."""
BATCH_BYTES: Final = 1024
"""Maximum size of a batch without messages."""
_RARE_BYTES: Final = max(64, sum(ROW_BYTES[column.layout] + 1 for column in RARE_COLUMNS))
"""Maximum size of a message's rare columns besides their texts; a bit for validity counts as a byte."""
EMPTY_BYTES: Final = 1 + sum(
    4 if column.layout is Layout.DICTIONARY else ROW_BYTES[column.layout]
    for column in RARE_COLUMNS
    if column.presence is not Presence.ALWAYS and column.presence is not Presence.ALL_OR_NONE
)
"""Maximum size of a plain message's empty rows in the rare columns of other messages; the validity bits are a byte."""
_WRONG_TYPE: Final = (TypeError, AttributeError, ValueError)
"""The errors of the bounds for a value of a wrong type."""
_STAMPED: Final = tuple((column, ()) for column in MESSAGE_COLUMNS if column.presence is Presence.ALWAYS)
_RARE_TEXTS: Final = [
    (place, column.layout) for place, column in enumerate(RARE_COLUMNS) if not column.layout.is_number
]


def encode(
    messages: Sequence[Message | bytes],
    sizes: Sequence[int] = (),
    *,
    now_ms: int,
    codec: Codec = Codec.NONE,
    limits: text_rules.MessageLimits = text_rules.PRODUCER_LIMITS,
) -> SealedBatch:
    """Encode 1 to 4,096 messages into one batch; a message without a birth time gets `now_ms`.

    Bare bytes stand for a message that has only this body. `sizes` are their lengths, given only if all messages are
    bare bytes that the caller has measured already.

    Raises Invalid, naming the message and the field, when a message breaks a limit. It also raises Invalid when only
    some messages have a deliver-at time or a priority. If the messages may be too many or too large for one batch, use
    `split_messages` first.
    """
    kinds, described = {bytes} if sizes else set(map(type, messages)), messages
    if bytes in kinds:
        described = [Message(one) if isinstance(one, bytes) else one for one in messages] if len(kinds) > 1 else ()
    bodies = [message.body for message in described] if described else messages  # type: ignore[union-attr]
    try:
        return _encode(bodies, described, sizes, now_ms, codec, limits)  # type: ignore[arg-type]
    except (Invalid, TypeError, AttributeError, OverflowError, struct.error) as error:
        _explain(described or [Message(body) for body in bodies], limits)  # type: ignore[arg-type]
        if isinstance(error, Invalid):
            raise
        raise Invalid(f"the columns cannot be encoded: {error}", field="messages") from None


def encoded_bytes_bound(message: Message) -> int:
    """Return the maximum number of bytes that the message adds to an uncompressed batch; an empty batch has 1 KiB.

    A message with a value of a wrong type counts as empty, because `encode` refuses it.
    """
    try:
        size = len(message.body) + MESSAGE_BYTES
        if message.tag:
            size += len(message.tag) * 4 + 4
        if keys := message.keys:
            size += (len(keys) + len("".join(keys))) * 4  # `len` first, because it refuses what can be read only once
        rare = message.rare
        if rare is not NO_RARE_FIELDS:
            size += _RARE_BYTES
            for place, layout in _RARE_TEXTS:
                if value := rare[place]:
                    size += _texts_bound(value, layout)
        return size
    except _WRONG_TYPE:
        return MESSAGE_BYTES


def batch_bytes_bound(messages: Sequence[Message]) -> int:
    """Return the maximum size of an uncompressed batch of these messages."""
    size = BATCH_BYTES + sum(map(encoded_bytes_bound, messages))
    plain_count = [message.rare for message in messages].count(NO_RARE_FIELDS)
    return size if plain_count == len(messages) else size + plain_count * EMPTY_BYTES


def _texts_bound(value: Any, layout: Layout) -> int:
    if layout is Layout.MAPS:
        return sum([(len(name) + len(text)) * 4 + 12 for name, text in value.items()])
    return sum([len(text) * 4 + 4 for text in value]) if layout is Layout.LISTS else len(value) * 4


def _encode(
    bodies: Sequence[bytes],
    messages: Sequence[Message],
    sizes: Sequence[int],
    now_ms: int,
    codec: Codec,
    limits: text_rules.MessageLimits,
) -> SealedBatch:
    """Encode `bodies` and the other fields of `messages`; if `messages` is empty, only bodies and birth times."""
    count = len(bodies)
    if not 1 <= count <= MESSAGES_MAX:
        raise Invalid(
            f"{count} messages; a batch holds 1 to {MESSAGES_MAX}: use split_messages first", field="messages"
        )
    sizes = sizes or list(map(len, bodies))
    inflated_bytes = sum(sizes)
    if inflated_bytes > BODY_BYTES_MAX or not all(sizes) or (messages and set(map(type, bodies)) != {bytes}):
        for row, body in enumerate(bodies):
            check_body(body, f"messages[{row}].body")
    if inflated_bytes > BODY_INFLATED_BYTES_MAX:
        raise Invalid(
            f"the bodies have {inflated_bytes} bytes; a batch may have {BODY_INFLATED_BYTES_MAX}: use split_messages "
            "first",
            field="messages",
        )
    columns, text_bytes, delayed = [], 0, False
    for column, values in _values(messages):
        if column.presence is not Presence.ALWAYS:
            data, bytes_max = write_column(column, values, limits)
        elif values:
            stamped = [now_ms if value is None else value for value in values] if None in values else values
            data, bytes_max = write_column(column, stamped, limits)
        else:
            data, bytes_max = times_buffer((now_ms,)) * count, 0
        if data:
            columns.append((column, data))
            delayed = delayed or column is DELIVER_AT
            if column.shares_text_limit:
                text_bytes += bytes_max
    if text_bytes > limits.text_bytes:
        _explain(messages, limits)
    records = batch_bytes(count, offsets_buffer(sizes), bodies, inflated_bytes, columns, codec)
    limit = RECORDS_BYTES_MAX if count > 1 else limits.single_bytes
    if (size := len(records)) > limit:
        raise Invalid(
            f"{count} messages make {size} bytes; a batch may have {limit}: use split_messages first", field="messages"
        )
    return SealedBatch(records, crc32c(records), count, inflated_bytes, delayed=delayed)


def _values(messages: Sequence[Message]) -> Iterable[tuple[MessageColumn[Any], Sequence[Any]]]:
    """The columns of a batch with these messages, and their values. The birth times are empty if no message has one."""
    if not messages:
        return _STAMPED
    tags, keys = [message.tag for message in messages], [message.keys for message in messages]
    rare = [message.rare for message in messages]
    if rare.count(NO_RARE_FIELDS) == len(rare):
        return (*_STAMPED, (TAG, tags), (KEYS, keys))
    values: dict[str, Sequence[Any]] = dict(zip(RareFields._fields, zip(*rare, strict=True), strict=True))
    values |= {TAG.name: tags, KEYS.name: keys}
    used = []
    for column in MESSAGE_COLUMNS:
        of_rows = values[column.name]
        if column.default is not None or of_rows.count(None) != len(rare):
            used.append((column, of_rows))
        elif column.presence is Presence.ALWAYS:
            used.append((column, ()))
    return used


def _explain(messages: Sequence[Message], limits: text_rules.MessageLimits) -> None:
    """Check each message and raise Invalid for the first that breaks a limit on its own."""
    for row, message in enumerate(messages[:MESSAGES_MAX]):
        check_parts(message.body, message.tag, message.keys, message.rare, f"messages[{row}]", limits)


class BatchBuilder:
    """Collects the messages of one batch: at most as many as fit, and only messages that can share a batch."""

    __slots__ = ("_bytes_max", "_exclusive", "_messages", "_messages_max", "_row_bytes", "_sizes", "size_bytes")

    def __init__(self, bytes_max: int = RECORDS_BYTES_MAX, messages_max: int = MESSAGES_MAX) -> None:
        """Make batches of at most `bytes_max` bytes as stored and `messages_max` messages."""
        self._bytes_max = min(bytes_max, RECORDS_BYTES_MAX)
        self._messages_max = min(messages_max, MESSAGES_MAX)
        self._messages: list[Message | bytes] = []
        self._sizes: list[int] = []
        """The sizes of the bare bodies that `extend` has taken."""
        self.size_bytes = BATCH_BYTES
        """The maximum size of the batch, uncompressed."""
        self._exclusive = 0
        self._row_bytes = MESSAGE_BYTES
        """MESSAGE_BYTES for a plain message in this batch: larger if another message has rare fields."""

    def __len__(self) -> int:
        return len(self._messages)

    def add(self, message: Message | bytes) -> int | None:
        """Take a message or a bare body, and return its row in the batch; None if it belongs into the next batch.

        An empty builder takes any message.
        """
        messages = self._messages
        row, row_bytes, exclusive = len(messages), self._row_bytes, 0
        if isinstance(message, bytes):
            size = self.size_bytes + len(message) + row_bytes
        else:
            size, rare = self.size_bytes + encoded_bytes_bound(message), message.rare
            if rare is NO_RARE_FIELDS:
                size += row_bytes - MESSAGE_BYTES
            else:
                exclusive = exclusive_columns(rare)
                if row_bytes == MESSAGE_BYTES:
                    row_bytes += EMPTY_BYTES
                    size += EMPTY_BYTES * row  # all messages before it are plain
        if not row:
            self._exclusive = exclusive
        elif size > self._bytes_max or exclusive != self._exclusive or row >= self._messages_max:
            return None
        messages.append(message)
        self.size_bytes, self._row_bytes = size, row_bytes
        return row

    def extend(self, messages: Sequence[Message] | Sequence[bytes]) -> int:
        """Take messages from the front of `messages` until one does not fit or has rare fields. Returns their number.

        The items are all messages, or all bare bodies. A bare body stands for a message that has nothing else. Sizes
        are computed in bulk from the longest tag and keys, which costs a tenth of a computation for each message.
        """
        room = self._bytes_max - self.size_bytes
        messages = messages[: min(self._messages_max - len(self._messages), max(1, room // _EXTENDED_BYTES))]
        if not messages or (self._messages and self._exclusive != 0):
            return 0
        if type(messages[0]) is bytes:
            sizes, extra = list(map(len, messages)), _EXTENDED_BYTES  # type: ignore[arg-type]
        else:
            messages = _usual(messages)  # type: ignore[arg-type]
            if not messages:
                return 0
            try:
                sizes, extra = [len(message.body) for message in messages], _extra_bytes(messages)
            except _WRONG_TYPE:
                sizes, extra = list(map(encoded_bytes_bound, messages)), 0
        extra += self._row_bytes - MESSAGE_BYTES
        count, total = len(sizes), sum(sizes) + extra * len(sizes)
        if total > room:
            ends = list(accumulate(sizes))
            count = bisect_right(range(count), room, key=lambda row: ends[row] + extra * (row + 1))
            if not count and not self._messages:
                count = 1
            total = ends[count - 1] + extra * count if count else 0
        if count:
            if type(messages[0]) is bytes:
                self._sizes += sizes[:count]
            self._messages += messages[:count]
            self.size_bytes += total
            self._exclusive = 0
        return count

    def take(self) -> tuple[list[Message | bytes], list[int]]:
        """Return the taken messages, unchecked, and start an empty batch. Bare bodies are returned unchanged.

        The second list has their sizes if all are bare bodies that `extend` has taken; otherwise it is empty.
        """
        messages, self._messages, self.size_bytes = self._messages, [], BATCH_BYTES
        sizes, self._sizes, self._row_bytes = self._sizes, [], MESSAGE_BYTES
        return messages, sizes if len(sizes) == len(messages) else []


def split_messages(messages: Sequence[Message]) -> Iterator[list[Message]]:
    """Split messages, in order, into lists that each fit into one batch."""
    builder = BatchBuilder()
    for message in messages:
        if builder.add(message) is None:
            yield builder.take()[0]  # type: ignore[misc]  # no bare body was added
            builder.add(message)
    if builder:
        yield builder.take()[0]  # type: ignore[misc]


def _usual(messages: Sequence[Message]) -> Sequence[Message]:
    """The messages at the front that have no rare fields."""
    rares = [message.rare for message in messages]
    if rares.count(NO_RARE_FIELDS) == len(rares):
        return messages
    return messages[: next(at for at, rare in enumerate(rares) if rare is not NO_RARE_FIELDS)]


def _extra_bytes(messages: Sequence[Message]) -> int:
    """The maximum size of a message besides its body."""
    tags = {message.tag for message in messages}
    keys = [several for message in messages if (several := message.keys)]
    longest_tag = max([len(tag) for tag in tags if tag], default=0)
    longest_keys = max([len(several) + len("".join(several)) for several in keys], default=0)
    return _EXTENDED_BYTES + 4 * longest_tag + 4 * longest_keys
