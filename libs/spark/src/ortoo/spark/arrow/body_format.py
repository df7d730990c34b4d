"""What becomes of bodies: bytes as they are, text, or fields parsed from JSON."""

import io
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from ortoo.common.errors import Invalid
from ortoo.spark.core.columns import VALUE


@dataclass(frozen=True, slots=True)
class BodyFormat:
    """How bodies are read, and what happens to one that is not what it should be."""

    name: str = "binary"
    """binary, utf8 or json."""
    on_invalid: str = "fail"
    """fail, null, or replace (text alone: U+FFFD for what is no UTF-8; JSON: null)."""

    def columns(self, body: Any, schema: Any) -> dict[str, Any]:
        """The columns `body` and `value` of the schema, made of a binary array. Errors: Invalid under `fail`."""
        made: dict[str, Any] = {}
        if "body" in schema.names:
            made["body"] = self._text(body) if self.name == "utf8" else body
        if VALUE in schema.names:
            made[VALUE] = self._value(body, schema.field(VALUE).type)
        return made

    def _text(self, body: Any) -> Any:
        text = pa.Array.from_buffers(pa.string(), len(body), body.buffers(), offset=body.offset)
        try:
            text.validate(full=True)
        except pa.ArrowInvalid:
            if self.on_invalid == "fail":
                row = next(row for row, each in enumerate(body) if _decoded(each.as_py(), "null") is None)
                raise Invalid(
                    f"the body in row {row} of a batch is no UTF-8; set onInvalid=null or =replace",
                    field="bodyFormat",
                ) from None
            return pa.array([_decoded(each, self.on_invalid) for each in body.to_pylist()], pa.string())
        return text

    def _value(self, body: Any, kind: Any) -> Any:
        parsed = _parsed(body, kind)
        if parsed is not None:
            return parsed
        rows = []
        for row in range(len(body)):
            one = _parsed(body.slice(row, 1), kind)
            if one is None and self.on_invalid == "fail":
                shown = body[row].as_py()[:80]
                raise Invalid(
                    f"the body in row {row} of a batch is no JSON of the fields in valueSchema: {shown!r}; "
                    "set onInvalid=null to go on",
                    field="bodyFormat",
                )
            rows.append(pa.nulls(1, kind) if one is None else one)
        return pa.concat_arrays(rows) if rows else pa.array([], kind)


def _decoded(body: bytes, on_invalid: str) -> str | None:
    try:
        return body.decode()
    except UnicodeDecodeError:
        return body.decode(errors="replace") if on_invalid == "replace" else None


def _parsed(body: Any, kind: Any) -> Any:
    """All bodies as structs, parsed in one go; None if one of them is not what it should be."""
    count = len(body)
    if not count:
        return pa.array([], kind)
    lists = pa.ListArray.from_arrays(pa.array([0, count], pa.int32()), body)
    lines = pc.binary_join(lists, b"\n")[0].as_buffer()
    options = pj.ParseOptions(
        explicit_schema=pa.schema(list(kind)), unexpected_field_behavior="ignore", newlines_in_values=True
    )
    try:
        table = pj.read_json(
            pa.BufferReader(lines), read_options=pj.ReadOptions(use_threads=False, block_size=max(len(lines), 1) + 1),
            parse_options=options,
        )  # fmt: skip
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, io.UnsupportedOperation):
        return None
    if table.num_rows != count:
        return None
    columns = [_one(table.column(field.name)).cast(field.type) for field in kind]
    return pa.StructArray.from_arrays(columns, fields=list(kind))


def _one(column: Any) -> Any:
    return column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
