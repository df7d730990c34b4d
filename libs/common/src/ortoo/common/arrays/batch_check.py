"""Checks a whole batch before it is forwarded: every column and every message, without a loop over messages.

    opened = check(sealed)      # or raises Invalid or Unsupported

A checked batch is safe for every reader. The sizes of its columns agree, and each text is complete UTF-8. Messages
keep the limits of the producer's library (ortoo.common.records.columns).
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ortoo.common.arrays.opened_batch import (
    RECORDS_PATH,
    DictionaryArrays,
    ListArrays,
    MapArrays,
    OpenedBatch,
    TextArrays,
)
from ortoo.common.errors import Invalid
from ortoo.common.records import text_rules
from ortoo.common.records.columns import MESSAGE_COLUMNS, MessageColumn
from ortoo.common.records.sealed_batch import SealedBatch
from ortoo.common.records.text_rules import (
    DEAD_LETTER_PROPERTIES,
    PROPERTIES_MAX,
    SYSTEM_PROPERTIES,
    TEXT_BYTES_MAX,
    TextRule,
)


def check(sealed: SealedBatch, *, verify_crc: bool = True) -> OpenedBatch:
    """Check a batch; returns the opened batch. Errors: Invalid, Unsupported.

    Compressed bodies are inflated, to ensure that every reader can inflate them. Without `verify_crc`, the limits and
    the CRC of the envelope are not checked.
    """
    if verify_crc:
        sealed.check()
    batch = OpenedBatch(sealed)
    _check_bodies(batch)
    for column in MESSAGE_COLUMNS:
        arrays = getattr(batch, column.name)
        if arrays is not None:
            _check_column(column, arrays)
    _check_text_sizes(batch)
    return batch


def check_texts(texts: TextArrays, rule: TextRule, path: str) -> None:
    """Refuse a column whose texts are not UTF-8 or break the rule. Errors: Invalid, naming `path`."""
    if texts.rows == 0:
        return
    data = np.frombuffer(texts.data, np.uint8) if texts.data else _NO_BYTES
    lowest, highest = (int(data.min()), int(data.max())) if len(data) else (0x21, 0x21)
    if highest >= 0x80:
        _check_utf8(texts, data, path)
    if lowest < 0x20 or highest == 0x7F or (highest > 0x7F and (data == 0x7F).any()):
        raise Invalid(
            f"a {rule.what} has the control character U+{int(data[(data < 0x20) | (data == 0x7F)][0]):04X}; "
            "take control characters out",
            field=path,
        )
    if not rule.bar_allowed and (data == _BAR).any():
        raise Invalid(f"a {rule.what} has a '|', which filters use to separate tags", field=path)
    if not rule.reserved_allowed:
        _check_reserved(texts, data, path)
    sizes = np.diff(texts.offsets)
    if int(sizes.max()) > rule.bytes_max:
        raise Invalid(f"a {rule.what} has {sizes.max()} bytes; at most {rule.bytes_max} fit", field=path)
    present = sizes if texts.valid is None else sizes[texts.valid]
    if not rule.empty_allowed and len(present) and int(present.min()) == 0:
        raise Invalid(f"a {rule.what} is empty; give at least one character or leave it out", field=path)
    if not rule.blank_allowed and lowest <= _SPACE:
        _check_blanks(texts, data, sizes, rule, path)


def _check_bodies(batch: OpenedBatch) -> None:
    offsets = batch.body_offsets
    empty = offsets[1:] == offsets[:-1]
    if empty.any():
        raise Invalid(
            f"message {int(empty.argmax())} has an empty body; a message needs at least 1 byte",
            field=f"{RECORDS_PATH}.body_offsets",
        )
    if len(batch.body) != batch.body_inflated_bytes:
        raise Invalid("the bodies do not have the declared size", field=f"{RECORDS_PATH}.body")


def _check_column(column: MessageColumn[Any], arrays: Any) -> None:
    """Raise Invalid unless all values of a column keep its rules."""
    path, rule = f"{RECORDS_PATH}.{column.name}", column.rule
    if rule is None:
        lowest = int(arrays.min())
        if lowest < 0:
            raise Invalid(f"{lowest} is negative", field=path)
        if column.number_max is not None and (highest := int(arrays.max())) > column.number_max:
            raise Invalid(f"{highest} is more than the maximum, {column.number_max}", field=path)
    elif isinstance(arrays, TextArrays):
        check_texts(arrays, rule, path)
    elif isinstance(arrays, DictionaryArrays):
        check_texts(arrays.texts, rule, f"{path}.dictionary")
    elif isinstance(arrays, ListArrays):
        check_texts(arrays.texts, rule, f"{path}.values")
    else:
        check_texts(arrays.names.texts, text_rules.PROPERTY_NAME, f"{path}.names.dictionary")
        check_texts(arrays.values, rule, f"{path}.values")
        most = int(np.diff(arrays.offsets).max())
        if most > PROPERTIES_MAX:
            raise Invalid(f"a message has {most} properties; {PROPERTIES_MAX} are allowed", field=path)


def _check_utf8(texts: TextArrays, data: NDArray[np.uint8], path: str) -> None:
    """Raise Invalid unless the bytes are UTF-8, no text begins inside a character, and none has a C1 control."""
    try:
        str(texts.data, "utf-8")
    except UnicodeDecodeError as error:
        raise Invalid(f"this is not UTF-8: {error.reason} at byte {error.start}", field=path) from None
    starts = texts.offsets[:-1]
    first = data[starts[starts < len(data)]]
    if ((first & 0xC0) == 0x80).any():
        raise Invalid("a text begins in the middle of a UTF-8 character", field=path)
    if ((data[:-1] == 0xC2) & (data[1:] < 0xA0)).any():
        raise Invalid("a text has a control character from U+0080 to U+009F; take it out", field=path)


def _check_reserved(texts: TextArrays, data: NDArray[np.uint8], path: str) -> None:
    """Raise Invalid if a text is the name of a property that only servers write."""
    joined = bytes(texts.data)
    for name, is_prefix in _RESERVED:
        if name not in joined:
            continue
        starts, sizes = texts.offsets[:-1], np.diff(texts.offsets)
        at = starts[sizes >= len(name)] if is_prefix else starts[sizes == len(name)]
        for number, byte in enumerate(name):
            at = at[data[at + number] == byte]
        if len(at):
            end = int(texts.offsets[int(np.searchsorted(texts.offsets, at[0], "right"))])
            raise text_rules.reserved_name(joined[int(at[0]) : end].decode(errors="replace")[:80], path)


def _check_blanks(
    texts: TextArrays, data: NDArray[np.uint8], sizes: NDArray[np.int32], rule: TextRule, path: str
) -> None:
    """Raise Invalid if a text consists only of spaces."""
    spaces = np.zeros(len(data) + 1, np.int32)
    np.cumsum(data == _SPACE, out=spaces[1:])
    blank = (np.diff(spaces[texts.offsets]) == sizes) & (sizes > 0)
    if (blank if texts.valid is None else blank & texts.valid).any():
        raise Invalid(f"a {rule.what} has only blanks; give other characters or leave it out", field=path)


def _check_text_sizes(batch: OpenedBatch) -> None:
    """Raise Invalid if tag, keys and properties of one message together are too long."""
    if _text_size_bound(batch) <= TEXT_BYTES_MAX:
        return
    sizes = np.zeros(batch.count, np.int64)
    for arrays in _columns_with_shared_limit(batch):
        if isinstance(arrays, ListArrays):
            sizes += np.diff(arrays.texts.offsets[arrays.offsets])
        elif isinstance(arrays, MapArrays):
            sizes += np.diff(_ends(arrays.names)[arrays.offsets])
            sizes += np.diff(arrays.values.offsets[arrays.offsets])
        elif isinstance(arrays, DictionaryArrays):
            sizes += np.diff(_ends(arrays))
        else:
            sizes += np.diff(arrays.offsets)
    row = int(sizes.argmax())
    if int(sizes[row]) > TEXT_BYTES_MAX:
        raise Invalid(
            f"tag, keys and properties of message {row} have {sizes[row]} bytes together, at most "
            f"{TEXT_BYTES_MAX} fit; put large values into the body",
            field=RECORDS_PATH,
        )


def _text_size_bound(batch: OpenedBatch) -> int:
    """An upper bound of the text bytes of each message, without a scan."""
    bound = 0
    for arrays in _columns_with_shared_limit(batch):
        if isinstance(arrays, ListArrays):
            bound += _longest(arrays.offsets) * _longest(arrays.texts.offsets)
        elif isinstance(arrays, MapArrays):
            longest = _longest(arrays.names.texts.offsets) + _longest(arrays.values.offsets)
            bound += _longest(arrays.offsets) * longest
        else:
            bound += _longest(arrays.texts.offsets if isinstance(arrays, DictionaryArrays) else arrays.offsets)
    return bound


def _columns_with_shared_limit(batch: OpenedBatch) -> list[Any]:
    return [arrays for name in _SHARING if (arrays := getattr(batch, name)) is not None]


def _ends(column: DictionaryArrays) -> NDArray[np.int64]:
    """The offsets of the rows' texts if they were stored one after another: n + 1 values, as in a plain text column."""
    ends = np.zeros(len(column.codes) + 1, np.int64)
    if column.texts.rows:
        sizes = np.diff(column.texts.offsets)[column.codes]
        np.cumsum(sizes if column.valid is None else sizes * column.valid, out=ends[1:])
    return ends


def _longest(offsets: NDArray[np.int32]) -> int:
    return int((offsets[1:] - offsets[:-1]).max()) if len(offsets) > 1 else 0


_SHARING = [column.name for column in MESSAGE_COLUMNS if column.shares_text_limit]
_RESERVED = (*((name.encode(), False) for name in sorted(SYSTEM_PROPERTIES)), (DEAD_LETTER_PROPERTIES.encode(), True))
"""Names of system properties, and whether the name is a prefix."""
_BAR = 0x7C
_SPACE = 0x20
_NO_BYTES = np.zeros(0, np.uint8)
