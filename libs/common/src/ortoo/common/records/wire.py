"""Reading and writing the few kinds of protobuf fields that a record batch uses, without copying.

A generated protobuf class copies every `bytes` field when it is parsed, once more when it is read, and twice when it
is written. Here a column is a memoryview into the batch, and a batch is written by one join. Tests compare both
directions with protobuf's own runtime.
"""

from ortoo.common.errors import Invalid

FIELDS_MAX = 128
"""Maximum number of fields of one protobuf message of a batch, which limits the time spent on invalid data."""

Field = int | memoryview
"""The value of a field: a number, or a view of its bytes (text, bytes, a nested message)."""

_FIXED = -1
_SINGLE = tuple(bytes((number,)) for number in range(0x80))


def varint(number: int) -> bytes:
    """Write a number from 0 to 2**64 - 1. Errors: ValueError for a negative number."""
    if 0 <= number < 0x80:
        return _SINGLE[number]
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def number_field(field: int, number: int) -> bytes:
    """Write a number; 0 is written as nothing, as protobuf does."""
    return varint(field << 3) + varint(number) if number else b""


def bytes_head(field: int, length: int) -> bytes:
    """Write the key and the length that come before the `length` bytes of a field."""
    return varint(field << 3 | 2) + varint(length)


def bytes_field(field: int, data: bytes) -> bytes:
    """Write a field of bytes; empty bytes are written as nothing, as protobuf does."""
    return bytes_head(field, len(data)) + data if data else b""


def nested(*fields: bytes | memoryview) -> bytes:
    """Write a message whose fields 1, 2, … are these bytes; empty bytes are written as nothing."""
    parts: list[bytes | memoryview] = []
    for number, data in enumerate(fields, 1):
        if data:
            parts += (bytes_head(number, len(data)), data)
    return b"".join(parts)


def read_fields(  # noqa: C901  # one loop, because a call for each field would double its time
    data: memoryview, path: str
) -> dict[int, Field]:
    """Read the fields of one protobuf message: field number -> number or view.

    Raises Invalid, naming `path`, when the bytes are not a protobuf message or contain a field twice, because a column
    is always one field. Fixed-width fields, which no known column uses, are read as -1.
    """
    fields: dict[int, Field] = {}
    position, end = 0, len(data)
    while position < end:
        key = data[position]
        if key < 0x80:  # nearly every key, and most lengths: a call for each would take half of the time
            position += 1
        else:
            key, position = _read_varint(data, position, end, path)
        field, kind = key >> 3, key & 7
        if kind == 2:
            if position < end and data[position] < 0x80:
                length = data[position]
                position += 1
            else:
                length, position = _read_varint(data, position, end, path)
            if length > end - position:
                raise Invalid(f"field {field} ends after the last byte: the bytes are truncated or damaged", field=path)
            value: Field = data[position : position + length]
            position += length
        elif kind == 0:
            if position < end and data[position] < 0x80:
                value = data[position]
                position += 1
            else:
                value, position = _read_varint(data, position, end, path)
        elif kind == 1 or kind == 5:
            length = 8 if kind == 1 else 4
            if length > end - position:
                raise Invalid(f"field {field} ends after the last byte: the bytes are truncated or damaged", field=path)
            value = _FIXED
            position += length
        else:
            raise Invalid(f"field {field} has the unknown wire type {kind}: the bytes are damaged", field=path)
        if field == 0 or key >> 32:
            raise Invalid(f"{field} is not a field number: the bytes are damaged", field=path)
        if field in fields:
            raise Invalid(f"field {field} occurs twice; every column must be written once", field=path)
        fields[field] = value
        if len(fields) > FIELDS_MAX:
            raise Invalid(f"more than {FIELDS_MAX} fields; this is not a record batch", field=path)
    return fields


def _read_varint(data: memoryview, position: int, end: int, path: str) -> tuple[int, int]:
    """Read one varint: the number and the position after it."""
    number = shift = 0
    while position < end and shift < 70:
        byte = data[position]
        position += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number & 0xFFFFFFFFFFFFFFFF, position
        shift += 7
    raise Invalid("a number is truncated or too long: the bytes are damaged", field=path)
