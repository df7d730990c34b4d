"""Converts rows of Spark to message columns: options override columns, extra columns become properties."""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ortoo.common.errors import Invalid
from ortoo.spark.writing.write_options import COLUMNS, WriteOptions

_MAP = pa.map_(pa.string(), pa.string())


def message_rows(batch: Any, options: WriteOptions) -> Any:
    """Convert rows to a pyarrow.RecordBatch with columns of messages only.

    Errors: Invalid for a row without `born_at`, if repeated tasks must write equal rows.
    """
    names = list(batch.schema.names)
    columns = dict(zip(names, batch.columns, strict=True))
    rows = len(batch)
    body = columns["body"]
    if options.is_repeatable and columns["born_at"].null_count:
        raise Invalid(
            f"a row has no born_at; {options.semantics} needs it in every row, for example coalesce(born_at, ...), "
            "because a repeated task must write equal rows",
            field="born_at",
        )
    made: dict[str, Any] = {"body": body.cast(pa.binary())}
    made |= {name: _normalized(column) for name, column in columns.items() if name in COLUMNS and name != "body"}
    if options.topic:
        made["topic"] = pa.repeat(pa.scalar(options.topic), rows)
    if options.tag:
        made["tag"] = pa.repeat(pa.scalar(options.tag), rows)
    if options.message_group:
        made["message_group"] = pa.repeat(pa.scalar(options.message_group), rows)
    extra = [name for name in names if name not in COLUMNS]
    if extra:
        made["properties"] = _add_extra_properties(
            made.get("properties"), {name: columns[name] for name in extra}, rows
        )
    return pa.RecordBatch.from_arrays(list(made.values()), names=list(made))


def _normalized(column: Any) -> Any:
    kind = column.type
    if pa.types.is_large_string(kind):  # with spark.sql.execution.arrow.useLargeVarTypes
        return column.cast(pa.string())
    if pa.types.is_map(kind):
        return column.cast(_MAP)
    if pa.types.is_list(kind):
        return column.cast(pa.list_(pa.string()))
    return column


def _add_extra_properties(properties: Any, extra: dict[str, Any], rows: int) -> Any:
    """The properties of each row, and one more property for each extra column that is not null."""
    if properties is None:
        properties = pa.array([[]] * rows, _MAP)
    texts = [column.cast(pa.string()) for column in extra.values()]
    # One entry for each row and column, in row order; those without a value are dropped.
    in_row_order = np.arange(rows * len(texts)).reshape(len(texts), rows).T.ravel()
    values = pa.concat_arrays(texts).take(pa.array(in_row_order))
    keep = values.is_valid()
    names = pa.array(list(extra)).take(pa.array(np.tile(np.arange(len(texts)), rows)))
    given = properties.cast(pa.list_(pa.struct([("key", pa.string()), ("value", pa.string())])))
    entries = pc.list_flatten(given)
    row_of = np.repeat(np.arange(rows), len(texts))[keep.to_numpy(zero_copy_only=False)]
    all_rows = np.concatenate((pc.list_parent_indices(given).to_numpy(), row_of))
    order = pa.array(np.argsort(all_rows, kind="stable"))
    places = np.concatenate(([0], np.cumsum(np.bincount(all_rows, minlength=rows)))).astype("<i4")
    all_names = pa.concat_arrays([entries.field(0), names.filter(keep)]).take(order)
    all_values = pa.concat_arrays([entries.field(1), values.filter(keep)]).take(order)
    return pa.MapArray.from_arrays(pa.array(places), all_names, all_values)
