"""Record batches: messages in columns, encoded once by their producer and never re-encoded.

    sealed = encode([Message(b"hello", "greeting", ("k1",))], now_ms=clock.now_ms())
    sealed = encode_columns(Columns(bodies, "flight", ["a", "b", ...]), now_ms=...)    # bulk, without Message objects
    for part in cut(messages): encode(part, now_ms=...)                                # any number of messages
    view = open_batch(sealed)                                                          # see view.py
    view.bodies(); view.tags(); view.message(0); list(view)

`encode` is deterministic: the same messages give the same bytes. docs/formats/record-batch.md describes them.
"""

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields

from ortoo.common.errors import Invalid
from ortoo.common.records import text_rules
from ortoo.common.records.columns import (
    NOTHING,
    Written,
    batch_bytes,
    dictionary_column,
    int32_buffer,
    int64_buffer,
    list_column,
    map_column,
    offsets_buffer,
    single_list_column,
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
    "Columns",
    "Message",
    "RecordBatchView",
    "SealedBatch",
    "cut",
    "encode",
    "encode_columns",
    "encoded_bytes_bound",
    "open_batch",
]

MESSAGE_BYTES = 28
"""Bytes of offsets, born-at and tag code that a message costs at most besides its body and texts."""
_BATCH_BYTES = 1024
"""Bytes that a batch costs by itself, generously."""


@dataclass(slots=True)
class Columns:
    """Messages by column, as `encode_columns` takes them; a column that is None is absent.

    `tags` may be one text for all rows; `keys` one text a row, or one sequence of texts a row. Every other column has
    one value a row, None where the row has none; from the fourth on they are RareFields, in their order.
    """

    bodies: Sequence[bytes]
    tags: Sequence[str | None] | str | None = None
    keys: Sequence[str] | Sequence[Sequence[str]] | None = None
    message_groups: Sequence[str | None] | None = None
    properties: Sequence[Mapping[str, str]] | None = None
    message_ids: Sequence[str | None] | None = None
    born_at_ms: Sequence[int | None] | None = None
    deliver_at_ms: Sequence[int | None] | None = None
    priorities: Sequence[int | None] | None = None
    body_encodings: Sequence[int] | None = None
    born_hosts: Sequence[str | None] | None = None
    trace_contexts: Sequence[str | None] | None = None
    expire_at_ms: Sequence[int | None] | None = None


def encode(
    messages: Sequence[Message | bytes],
    *,
    now_ms: int,
    codec: Codec = Codec.NONE,
    limits: text_rules.Limits = text_rules.OF_PRODUCERS,
) -> SealedBatch:
    """Encode 1 to 4,096 messages into one batch; a message without a birth time gets `now_ms`.

    Bare bytes are a message that has nothing but this body.

    Raises Invalid, naming the message and the field, when a message breaks a limit, when only some have a deliver-at
    or a priority, or when all together are more than one batch holds (`cut` first).
    """
    if bytes in (kinds := set(map(type, messages))):
        if len(kinds) == 1:
            return encode_columns(Columns(messages), now_ms=now_ms, codec=codec)  # type: ignore[arg-type]
        messages = [Message(message) if isinstance(message, bytes) else message for message in messages]
    return _encode_messages(messages, now_ms, codec, limits)  # type: ignore[arg-type]


def _encode_messages(messages: Sequence[Message], now_ms: int, codec: Codec, limits: text_rules.Limits) -> SealedBatch:
    rare = [message.rare for message in messages]
    columns = Columns(
        [message.body for message in messages],
        [message.tag for message in messages],
        [message.keys for message in messages],
        *(zip(*rare, strict=True) if rare.count(NO_RARE_FIELDS) != len(rare) else ()),
    )
    return encode_columns(columns, now_ms=now_ms, codec=codec, limits=limits)


def encode_columns(
    columns: Columns,
    *,
    now_ms: int,
    codec: Codec = Codec.NONE,
    limits: text_rules.Limits = text_rules.OF_PRODUCERS,
) -> SealedBatch:
    """Encode messages given by column; as `encode` otherwise."""
    try:
        return _encode(columns, now_ms, codec, limits)
    except (Invalid, TypeError, AttributeError, OverflowError, struct.error) as error:
        _explain(columns, limits)
        if isinstance(error, Invalid):
            raise
        raise Invalid(f"the columns cannot be encoded: {error}", field="messages") from None


def cut(messages: Sequence[Message]) -> Iterator[Sequence[Message]]:
    """Cut messages, in order, into runs that each fit into one batch; looks at every message."""
    start, size = 0, _BATCH_BYTES
    for row, message in enumerate(messages):
        cost = encoded_bytes_bound(message)
        if row > start and (size + cost > RECORDS_BYTES_MAX or row - start == MESSAGES_MAX):
            yield messages[start:row]
            start, size = row, _BATCH_BYTES
        size += cost
    if start < len(messages):
        yield messages[start:]


def encoded_bytes_bound(message: Message) -> int:
    """Return how many bytes the message adds to a batch at most, uncompressed; a batch itself adds 1 KiB."""
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


def _encode(columns: Columns, now_ms: int, codec: Codec, limits: text_rules.Limits) -> SealedBatch:
    bodies = columns.bodies
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
    written = _columns_behind_body(columns, count, now_ms, limits)
    records = batch_bytes(count, offsets_buffer(sizes), bodies, inflated_bytes, written.items(), codec)
    limit = RECORDS_BYTES_MAX if count > 1 else limits.single_bytes
    if (size := len(records)) > limit:
        raise Invalid(f"{count} messages make {size} bytes; a batch may have {limit}: cut them first", field="messages")
    delayed = columns.deliver_at_ms is not None and columns.deliver_at_ms[0] is not None
    return SealedBatch(records, crc32c(records), count, inflated_bytes, delayed=delayed)


def _columns_behind_body(columns: Columns, count: int, now_ms: int, limits: text_rules.Limits) -> dict[str, bytes]:
    """Write the columns that come behind the body column, by name."""
    tags = (columns.tags,) * count if isinstance(columns.tags, str) else columns.tags
    tag = _column("tag", tags, count, dictionary_column, text_rules.TAG)
    keys = _column("keys", columns.keys, count, _keys)
    group = _column("message_group", columns.message_groups, count, dictionary_column, text_rules.MESSAGE_GROUP)
    properties = _column("properties", columns.properties, count, map_column, limits)
    if tag[1] + keys[1] + properties[1] > limits.text_bytes:
        _explain(columns, limits)
    return {
        "born_at_ms": _born_at(columns.born_at_ms, count, now_ms),
        "tag": tag[0],
        "keys": keys[0],
        "message_group": group[0],
        "properties": properties[0],
        "deliver_at_ms": int64_buffer(_all("deliver_at_ms", columns.deliver_at_ms, count)),
        "priority": int32_buffer(_all("priority", columns.priorities, count)),
        "body_encoding": _body_encodings(columns.body_encodings, count),
        "born_host": _column("born_host", columns.born_hosts, count, dictionary_column, text_rules.BORN_HOST)[0],
        "message_id": _column("message_id", columns.message_ids, count, text_column, text_rules.MESSAGE_ID)[0],
        "trace_context": _column("trace_context", columns.trace_contexts, count, text_column, text_rules.TRACE_CONTEXT)[
            0
        ],
        "expire_at_ms": _expire_at(columns.expire_at_ms, count),
    }


def _column(
    name: str, rows: Sequence[object] | None, count: int, write: Callable[..., Written], *rules: object
) -> Written:
    """Write the values of a column, one a row; nothing if there are none."""
    if rows is None:
        return NOTHING
    _check_rows(name, rows, count)
    return write(rows, *rules)


def _keys(keys: Sequence[str] | Sequence[Sequence[str]]) -> Written:
    if isinstance(keys[0], str) and set(map(type, keys)) == {str}:
        return single_list_column(keys, text_rules.KEY)  # type: ignore[arg-type]
    return list_column(keys, text_rules.KEY)


def _born_at(times: Sequence[int | None] | None, count: int, now_ms: int) -> bytes:
    if times is None:
        return int64_buffer((now_ms,)) * count
    _check_rows("born_at_ms", times, count)
    return int64_buffer(_not_negative("born_at_ms", [now_ms if time is None else time for time in times]))


def _all(name: str, numbers: Sequence[int | None] | None, count: int) -> Sequence[int]:
    """Return the numbers of a column that all rows have or none; () for none."""
    if numbers is None:
        return ()
    _check_rows(name, numbers, count)
    missing = numbers.count(None)
    if missing == count:
        return ()
    if missing:
        raise Invalid(
            f"{missing} of {count} messages have none; send those with and those without in batches of their own",
            field=name,
        )
    return _not_negative(name, numbers)  # type: ignore[arg-type]


def _expire_at(times: Sequence[int | None] | None, count: int) -> bytes:
    if times is None:
        return b""
    _check_rows("expire_at_ms", times, count)
    given = [time for time in times if time is not None]
    if not given:
        return b""
    if min(given) < 1:
        raise Invalid(f"{min(given)} is no time; leave it out for messages that never expire", field="expire_at_ms")
    return int64_buffer([time or 0 for time in times])


def _body_encodings(encodings: Sequence[int] | None, count: int) -> bytes:
    if encodings is None:
        return b""
    _check_rows("body_encoding", encodings, count)
    if encodings.count(BODY_AS_IS) == count:
        return b""
    if not {0, 1}.issuperset(encodings):
        raise Invalid("a body encoding is 0 (as is) or 1 (gzip)", field="body_encoding")
    return bytes(encodings)


def _not_negative(name: str, numbers: Sequence[int]) -> Sequence[int]:
    if min(numbers) < 0:
        raise Invalid(f"{min(numbers)} is negative", field=name)
    return numbers


def _check_rows(name: str, rows: Sequence[object], count: int) -> None:
    if len(rows) != count:
        raise Invalid(f"{len(rows)} values for {count} bodies; give one a body", field=name)


def _explain(columns: Columns, limits: text_rules.Limits) -> None:
    """Look at message after message and raise Invalid for the first that breaks a limit by itself."""
    count = len(columns.bodies)

    def at(row: int, values: Sequence[object] | None, default: object = None) -> object:
        return default if values is None or row >= len(values) else values[row]

    one_key = columns.keys is not None and set(map(type, columns.keys)) == {str}
    for row in range(min(count, MESSAGES_MAX)):
        keys = at(row, columns.keys, ())
        rare = RareFields._make(
            at(row, getattr(columns, field.name), default)
            for field, default in zip(fields(columns)[3:], NO_RARE_FIELDS, strict=True)
        )
        tag = columns.tags if isinstance(columns.tags, str) else at(row, columns.tags)
        check_parts(
            columns.bodies[row],
            tag,  # type: ignore[arg-type]
            (keys,) if one_key else keys,  # type: ignore[arg-type]
            rare,
            f"messages[{row}]",
            limits,
        )
