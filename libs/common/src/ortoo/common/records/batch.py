"""Record batches: messages in columns, encoded once by their producer and never re-encoded.

    sealed = encode([Message(b"hello", "greeting", ("k1",))], now_ms=clock.now_ms())
    sealed = encode(bodies, now_ms=clock.now_ms())         # without Message objects

    for part in split_messages(messages):                  # any number, see builder.py
        encode(part, now_ms=...)

    view = open_batch(sealed)                              # see view.py
    list(view)

`encode` is deterministic: the same messages give the same bytes. docs/formats/record-batch.md describes them.
"""

import struct
from collections.abc import Sequence
from typing import Any

from ortoo.common.errors import Invalid
from ortoo.common.records import text_rules
from ortoo.common.records.columns import (
    batch_bytes,
    dictionary_column,
    int32_buffer,
    int64_buffer,
    list_column,
    map_column,
    offsets_buffer,
    text_column,
)
from ortoo.common.records.compression import Codec
from ortoo.common.records.message import (
    BODY_AS_IS,
    BODY_BYTES_MAX,
    NO_RARE_FIELDS,
    Message,
    RareFields,
    check_body,
    check_parts,
)
from ortoo.common.records.sealed_batch import (
    BODY_INFLATED_BYTES_MAX,
    MESSAGES_MAX,
    RECORDS_BYTES_MAX,
    SealedBatch,
    crc32c,
)
from ortoo.common.records.view import RecordBatchView, open_batch

__all__ = [
    "MESSAGE_BYTES",
    "Codec",
    "Message",
    "RecordBatchView",
    "SealedBatch",
    "encode",
    "encoded_bytes_bound",
    "open_batch",
]

MESSAGE_BYTES = 28
"""Maximum size of a message's offsets, born-at and tag code, besides its body and texts."""


def encode(
    messages: Sequence[Message | bytes],
    *,
    now_ms: int,
    codec: Codec = Codec.NONE,
    limits: text_rules.MessageLimits = text_rules.PRODUCER_LIMITS,
) -> SealedBatch:
    """Encode 1 to 4,096 messages into one batch; a message without a birth time gets `now_ms`.

    Bare bytes are a message that has only this body.

    Raises Invalid, naming the message and the field, when a message breaks a limit, or only some have a deliver-at or a
    priority. It also raises Invalid when all together are more than one batch holds (use `split_messages` first).
    """
    kinds, described = set(map(type, messages)), messages
    if bytes in kinds:
        described = [Message(one) if isinstance(one, bytes) else one for one in messages] if len(kinds) > 1 else ()
    bodies = [message.body for message in described] if described else messages  # type: ignore[union-attr]
    try:
        return _encode(bodies, described, now_ms, codec, limits)  # type: ignore[arg-type]
    except (Invalid, TypeError, AttributeError, OverflowError, struct.error) as error:
        _explain(described or [Message(body) for body in bodies], limits)  # type: ignore[arg-type]
        if isinstance(error, Invalid):
            raise
        raise Invalid(f"the columns cannot be encoded: {error}", field="messages") from None


def encoded_bytes_bound(message: Message) -> int:
    """Return the maximum size that the message adds to an uncompressed batch; a batch itself adds 1 KiB."""
    size = len(message.body) + MESSAGE_BYTES
    if message.tag:
        size += len(message.tag) * 4 + 4
    for key in message.keys:
        size += len(key) * 4 + 4
    rare = message.rare
    if rare is not NO_RARE_FIELDS:
        size += 64
        for text in (rare.message_group, rare.message_id, rare.born_host, rare.trace_context):
            size += len(text) * 4 if text else 0
        for name, value in rare.properties.items():
            size += (len(name) + len(value)) * 4 + 12
    return size


def _encode(
    bodies: Sequence[bytes], messages: Sequence[Message], now_ms: int, codec: Codec, limits: text_rules.MessageLimits
) -> SealedBatch:
    """Encode bodies and the other fields of the messages; only bodies without messages."""
    count = len(bodies)
    if not 1 <= count <= MESSAGES_MAX:
        raise Invalid(f"{count} messages; a batch holds 1 to {MESSAGES_MAX}: cut them first", field="messages")
    sizes = list(map(len, bodies))
    inflated_bytes = sum(sizes)
    if min(sizes) == 0 or max(sizes) > BODY_BYTES_MAX or set(map(type, bodies)) != {bytes}:
        for row, body in enumerate(bodies):
            check_body(body, f"messages[{row}].body")
    if inflated_bytes > BODY_INFLATED_BYTES_MAX:
        raise Invalid(
            f"the bodies have {inflated_bytes} bytes; a batch may have {BODY_INFLATED_BYTES_MAX}: cut them first",
            field="messages",
        )
    written = {"born_at_ms": int64_buffer((now_ms,)) * count}
    if messages:
        written |= _columns_behind_body(messages, now_ms, limits)
    records = batch_bytes(count, offsets_buffer(sizes), bodies, inflated_bytes, written.items(), codec)
    limit = RECORDS_BYTES_MAX if count > 1 else limits.single_bytes
    if (size := len(records)) > limit:
        raise Invalid(f"{count} messages make {size} bytes; a batch may have {limit}: cut them first", field="messages")
    return SealedBatch(records, crc32c(records), count, inflated_bytes, delayed=bool(written.get("deliver_at_ms")))


def _columns_behind_body(
    messages: Sequence[Message], now_ms: int, limits: text_rules.MessageLimits
) -> dict[str, bytes]:
    """Write the columns after the body column, by name and in order."""
    tag, tag_bytes = dictionary_column([message.tag for message in messages], text_rules.TAG)
    keys, keys_bytes = list_column(_keys(messages), text_rules.KEY)
    written, text_bytes = {"tag": tag, "keys": keys}, tag_bytes + keys_bytes
    rare = [message.rare for message in messages]
    if rare.count(NO_RARE_FIELDS) != len(rare):
        rows: Any = RareFields._make(zip(*rare, strict=True))
        properties, properties_bytes = map_column(rows.properties, limits)
        text_bytes += properties_bytes
        born_at_ms = [now_ms if time is None else time for time in rows.born_at_ms]
        written |= {
            "born_at_ms": int64_buffer(_not_negative("born_at_ms", born_at_ms)),
            "message_group": dictionary_column(rows.message_group, text_rules.MESSAGE_GROUP)[0],
            "properties": properties,
            "deliver_at_ms": int64_buffer(_all("deliver_at_ms", rows.deliver_at_ms)),
            "priority": int32_buffer(_all("priority", rows.priority)),
            "body_encoding": _body_encodings(rows.body_encoding),
            "born_host": dictionary_column(rows.born_host, text_rules.BORN_HOST)[0],
            "message_id": text_column(rows.message_id, text_rules.MESSAGE_ID)[0],
            "trace_context": text_column(rows.trace_context, text_rules.TRACE_CONTEXT)[0],
            "expire_at_ms": _expire_at(rows.expire_at_ms),
        }
    if text_bytes > limits.text_bytes:
        _explain(messages, limits)
    return written


def _keys(messages: Sequence[Message]) -> Sequence[Sequence[str]]:
    """Each message's keys. Where each has a text instead of a tuple, that is its only key."""
    keys = [message.keys for message in messages]
    is_text = bool(keys) and isinstance(keys[0], str) and set(map(type, keys)) == {str}
    return [(str(key),) for key in keys] if is_text else keys


def _all(name: str, numbers: Sequence[int | None]) -> Sequence[int]:
    """Return the numbers of a column that either all rows have or none; () for none."""
    missing = numbers.count(None)
    if missing == len(numbers):
        return ()
    if missing:
        raise Invalid(
            f"{missing} of {len(numbers)} messages have none; send those with and those without in separate batches",
            field=name,
        )
    return _not_negative(name, numbers)  # type: ignore[arg-type]


def _expire_at(times: Sequence[int | None]) -> bytes:
    given = [time for time in times if time is not None]
    if not given:
        return b""
    if min(given) < 1:
        raise Invalid(f"{min(given)} is not a time; leave it out for messages that never expire", field="expire_at_ms")
    return int64_buffer([time or 0 for time in times])


def _body_encodings(encodings: Sequence[int]) -> bytes:
    if encodings.count(BODY_AS_IS) == len(encodings):
        return b""
    if not {0, 1}.issuperset(encodings):
        raise Invalid("a body encoding is 0 (as is) or 1 (gzip)", field="body_encoding")
    return bytes(encodings)


def _not_negative(name: str, numbers: Sequence[int]) -> Sequence[int]:
    if min(numbers) < 0:
        raise Invalid(f"{min(numbers)} is negative", field=name)
    return numbers


def _explain(messages: Sequence[Message], limits: text_rules.MessageLimits) -> None:
    """Check each message and raise Invalid for the first that breaks a limit on its own."""
    for row, (message, keys) in enumerate(zip(messages[:MESSAGES_MAX], _keys(messages), strict=False)):
        check_parts(message.body, message.tag, keys, message.rare, f"messages[{row}]", limits)
