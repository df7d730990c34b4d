"""Projection: a copy of a batch with only the columns that a reader requests."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from ortoo.common.errors import Invalid
from ortoo.common.records.columns import COLUMNS, NUMBERS, MessageColumn
from ortoo.common.records.sealed_batch import COPY_RECORD_BYTES_MAX, SealedBatch, crc32c
from ortoo.common.records.wire import Field, bytes_head, number_field, read_fields

Columns = frozenset[int]
"""Field numbers of a record batch; empty = all of it."""

_PATH = "batch.records"
_SAVED_PART: Final = 8
"""A batch is rewritten only if that saves an eighth of its bytes. Sending a byte costs about ten times as much as
copying."""
_HEAD: Final = frozenset(
    column.number
    for column in COLUMNS
    if (column.is_about_body if isinstance(column, MessageColumn) else column.name != "body")
)
"""The columns without which a batch cannot be opened, or its bodies cannot be decoded."""


def columns_of(names: Sequence[str]) -> Columns:
    """The numbers of the named columns, and of the columns that are needed to open a batch.

    Empty `names` give an empty set, which means all columns.

    Errors: Invalid for a name that no field of a record batch has.
    """
    unknown = sorted(set(names) - set(NUMBERS))
    if unknown:
        raise Invalid(f"{unknown[0]!r} is not a column; expected {', '.join(NUMBERS)}", field="columns")
    wanted = frozenset(NUMBERS[name] for name in names)
    return wanted | _HEAD if wanted else wanted


def project(batch: SealedBatch, columns: Columns) -> SealedBatch:
    """A batch with at least these columns of `batch`, and all its rows.

    Errors: Invalid for bytes that are not a batch, or that differ from those that the producer sealed.
    """
    if not columns:
        return batch
    fields = read_fields(memoryview(batch.records), _PATH)
    kept = {number: field for number, field in fields.items() if number in columns}
    left_out = sum(_size(field) for number, field in fields.items() if number not in columns)
    if _SAVED_PART * left_out < len(batch.records):
        return batch
    batch.check(single_bytes_max=COPY_RECORD_BYTES_MAX)
    parts: list[bytes | memoryview] = []
    for number, field in kept.items():
        parts += [number_field(number, field)] if isinstance(field, int) else [bytes_head(number, len(field)), field]
    records = b"".join(parts)
    return replace(batch, records=records, records_crc32c=crc32c(records))


def _size(field: Field) -> int:
    return 0 if isinstance(field, int) else len(field)
