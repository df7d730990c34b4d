"""Writing the columns of a record batch from Python values, without numpy; `reader` reads them.

Writers take one value per row and return the bytes of the column, or b"" when no row has a value. An unused column is
absent and costs nothing. Writers also return the largest possible size of one row's texts, so that a message's limit on
texts is seldom checked row by row.
"""

import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import accumulate, chain, repeat
from types import MappingProxyType
from typing import Any, Final

from ortoo.common.errors import Invalid
from ortoo.common.records.columns import FORMAT, MESSAGE_COLUMNS, NUMBERS, Layout, MessageColumn, Presence
from ortoo.common.records.compression import Codec, deflate
from ortoo.common.records.message import check_map
from ortoo.common.records.text_rules import MessageLimits, TextRule
from ortoo.common.records.wire import bytes_field, bytes_head, nested, number_field

Written = tuple[bytes, int]
"""A written column, and the maximum number of UTF-8 bytes of a row."""
NOTHING: Final[Written] = (b"", 0)
"""An absent column."""
_FEW_ROWS: Final = 64
"""Up to this number of rows, nothing is gained by remembering their offsets."""
_MANY_ROWS: Final = 16_384
"""Above this number of rows, their offsets are not remembered, because a message may have any number of keys."""


def batch_bytes(
    count: int,
    body_offsets: bytes,
    bodies: Sequence[bytes | memoryview],
    inflated_bytes: int,
    columns: Iterable[tuple[MessageColumn[Any], bytes]],
    codec: Codec = Codec.NONE,
    preceding_digest: int = 0,
) -> bytes:
    """The bytes of a batch: its head, its bodies, and then the written `columns`, in the order of their numbers.

    The concatenated `bodies` have `inflated_bytes`. They are compressed by `codec` if this makes them smaller.
    """
    stored_bytes, stored_codec = inflated_bytes, Codec.NONE
    if codec is not Codec.NONE:
        deflated = deflate(b"".join(bodies), codec)
        if len(deflated) < inflated_bytes:
            bodies, stored_bytes, stored_codec = (deflated,), len(deflated), codec
    return b"".join(
        (
            number_field(NUMBERS["format"], FORMAT),
            number_field(NUMBERS["count"], count),
            number_field(NUMBERS["codec"], stored_codec),
            number_field(NUMBERS["body_inflated_bytes"], inflated_bytes),
            bytes_field(NUMBERS["body_offsets"], body_offsets),
            bytes_head(NUMBERS["body"], stored_bytes),
            *bodies,
            *[bytes_field(column.number, data) for column, data in columns],
            number_field(NUMBERS["preceding_digest"], preceding_digest),
        )
    )


def write_column(column: MessageColumn[Any], values: Sequence[Any], limits: MessageLimits) -> Written:
    """Write the values of a column, one for each row. Errors: Invalid for a value that breaks a rule of the column."""
    return _WRITERS[column.number](values, limits)


def int32_buffer(numbers: Sequence[int]) -> bytes:
    """Write numbers as little-endian int32."""
    return struct.pack(f"<{len(numbers)}i", *numbers)


def times_buffer(numbers: Sequence[int]) -> bytes:
    """Write numbers as little-endian int64."""
    return struct.pack(f"<{len(numbers)}q", *numbers)


def offsets_buffer(sizes: Sequence[int]) -> bytes:
    """Write the int32 offsets of rows with these sizes: the start of each row, and the end of the last row."""
    if _FEW_ROWS < len(sizes) <= _MANY_ROWS and sizes[0] == sizes[-1] and sizes.count(sizes[0]) == len(sizes):
        return _equal_offsets(len(sizes), sizes[0])
    return struct.pack(f"<{len(sizes) + 1}i", *accumulate(sizes, initial=0))


@lru_cache(maxsize=8)
def _equal_offsets(count: int, size: int) -> bytes:
    """The offsets of rows of one size. Producers of equal messages fill each batch with the same number of them."""
    return struct.pack(f"<{count + 1}i", *accumulate(repeat(size, count), initial=0))


def validity_buffer(values: Sequence[object]) -> bytes:
    """Write one bit per row, least significant first: 1 = the row has a value."""
    bits = "".join(["0" if value is None else "1" for value in values])
    return int(bits[::-1], 2).to_bytes((len(values) + 7) // 8, "little")


def _number_column(column: MessageColumn[Any], numbers: Sequence[Any]) -> bytes:
    """Write numbers; no bytes if no row has a number. Raises Invalid for a number outside the limits of the column."""
    given = numbers
    if column.presence is Presence.IF_NOT_ZERO:
        if numbers.count(0) == len(numbers):
            return b""
    elif missing := numbers.count(None):
        if missing == len(numbers):
            return b""
        if column.presence is Presence.ALL_OR_NONE:
            raise Invalid(
                f"{missing} of {len(numbers)} messages have no value; send messages with and without a value in "
                "separate batches",
                field=column.name,
            )
        given = [number for number in numbers if number is not None]
        numbers = [number or 0 for number in numbers]
    wrong = min(given)
    if wrong >= column.least and column.number_max is not None:
        wrong = max(given)  # otherwise the width of the layout is the limit
    if not column.least <= wrong <= column.largest:
        raise Invalid(f"{wrong} is not a number from {column.least} to {column.largest}", field=column.name)
    return struct.pack(f"<{len(numbers)}{_CODES[column.layout]}", *numbers)


def text_column(texts: Sequence[str | None], rule: TextRule) -> Written:
    """Write texts in Arrow's utf8 layout; no bytes if all are None. Raises Invalid if a text breaks the rule."""
    missing = texts.count(None)
    if missing == len(texts):
        return NOTHING
    if not missing:
        return _texts(list(texts), rule)  # type: ignore[arg-type]
    there = [text for text in texts if text is not None]
    return _texts(["" if text is None else text for text in texts], rule, there, validity_buffer(texts))


def dictionary_column(texts: Sequence[str | None], rule: TextRule) -> Written:
    """Write texts in Arrow's dictionary layout; no bytes if all are None. Raises Invalid if a text breaks the rule."""
    try:
        distinct = dict.fromkeys(texts)
    except TypeError:
        raise Invalid(f"a {rule.what} is not a text; give str", field=rule.what.replace(" ", "_")) from None
    has_nulls = None in distinct
    if has_nulls:
        del distinct[None]
    if not distinct:
        return NOTHING
    if len(distinct) == 1:
        codes = bytes(4 * len(texts))
    else:
        places: dict[str | None, int] = dict(zip(distinct, range(len(distinct)), strict=True))
        places[None] = 0
        codes = struct.pack(f"<{len(texts)}i", *map(places.__getitem__, texts))
    dictionary, longest = _texts(list(distinct), rule)  # type: ignore[arg-type]
    return nested(validity_buffer(texts) if has_nulls else b"", codes, dictionary), longest


def list_column(lists: Sequence[Sequence[str]], rule: TextRule) -> Written:
    """Write lists in Arrow's list<utf8> layout; no bytes if all are empty. Raises Invalid if a text breaks the rule."""
    if not set(map(type, lists)) <= _LISTS:
        for several in lists:
            rule.check_list(several, f"{rule.what}s")
    texts = list(chain.from_iterable(lists))
    if not texts:
        return NOTHING
    sizes = list(map(len, lists))
    values, longest = _texts(texts, rule)
    return nested(offsets_buffer(sizes), values), longest * max(sizes)


def map_column(maps: Sequence[Mapping[str, str]], rule: TextRule, limits: MessageLimits) -> Written:
    """Write maps in Arrow's map layout with dictionary-encoded names; no bytes if all maps are empty."""
    if not set(map(type, maps)) <= _MAPS:
        for entries in maps:
            check_map(entries, rule, "properties", limits)
    names: list[str] = list(chain.from_iterable(maps))
    if not names:
        return NOTHING
    sizes = list(map(len, maps))
    most = max(sizes)
    if most > limits.properties:
        raise Invalid(f"{most} properties; a message may have at most {limits.properties}", field="properties")
    values = list(chain.from_iterable([entries.values() for entries in maps if entries]))
    name_column, longest_name = dictionary_column(names, limits.property_name)
    value_column, longest_value = _texts(values, rule)
    return nested(offsets_buffer(sizes), name_column, value_column), most * (longest_name + longest_value)


def _texts(texts: list[str], rule: TextRule, check: list[str] | None = None, validity: bytes = b"") -> Written:
    """Write texts. If only some rows have a value, `check` has these rows' texts and `validity` is the bitmap."""
    field = rule.what.replace(" ", "_")
    try:
        joined = "".join(texts)
        data = joined.encode()
        sizes = list(map(len, texts)) if joined.isascii() else [len(text.encode()) for text in texts]
    except TypeError:
        raise Invalid(f"a {rule.what} is not a text; give str", field=field) from None
    except UnicodeEncodeError as error:
        raise Invalid(f"a {rule.what} cannot be written as UTF-8: {error.reason}", field=field) from None
    longest = max(sizes)
    if longest > rule.bytes_max or not rule.holds(texts if check is None else check, joined):
        for text in texts if check is None else check:
            rule.check(text, field)
    return nested(validity, offsets_buffer(sizes), data), longest


_MAPS: Final = {dict, MappingProxyType}
"""The usual types of a row's properties. Others are checked row by row."""
_LISTS: Final = {tuple, list}
"""The usual types of a row's texts. Others, such as a text or a generator, are checked row by row."""
_CODES: Final = {Layout.INT8: "b", Layout.INT32: "i", Layout.TIMES: "q"}
"""The format of a number in `struct`."""
_TEXT_WRITERS: Final[dict[Layout, Callable[[Sequence[Any], TextRule], Written]]] = {
    Layout.TEXTS: text_column,
    Layout.DICTIONARY: dictionary_column,
    Layout.LISTS: list_column,
}


def _writer_of(column: MessageColumn[Any]) -> Callable[[Sequence[Any], MessageLimits], Written]:
    rule = column.rule
    if rule is None:
        return lambda numbers, limits: (_number_column(column, numbers), 0)
    if column.layout is Layout.MAPS:
        return lambda maps, limits: map_column(maps, rule, limits)
    write = _TEXT_WRITERS[column.layout]
    return lambda values, limits: write(values, rule)


_WRITERS: Final = {column.number: _writer_of(column) for column in MESSAGE_COLUMNS}
