"""The exact Arrow schema that Spark expects for a read, and what is wrong with one that cannot be given."""

from typing import Any

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema

from ortoo.common.errors import Invalid
from ortoo.spark.arrow.buffers import MAP
from ortoo.spark.core.columns import BY_NAME, VALUE
from ortoo.spark.core.read_options import ReadOptions

_TYPES = {
    "string": pa.string(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "binary": pa.binary(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "array<string>": pa.list_(pa.field("element", pa.string())),
    "map<string,string>": MAP,
}


def arrow_schema(schema: Any, options: ReadOptions) -> Any:
    """The Arrow schema for a pyspark StructType. Errors: Invalid for a column with another type than ours."""
    made = to_arrow_schema(schema, timezone="UTC")
    for field in made:
        if field.name == VALUE:
            if not pa.types.is_struct(field.type):
                raise Invalid(f"value is {field.type}; with bodyFormat=json it is a struct", field="schema")
            continue
        ddl = "string" if field.name == "body" and options.body_format == "utf8" else BY_NAME[field.name].ddl
        if field.type != _TYPES[ddl]:
            raise Invalid(f"the column {field.name} is {ddl}, not {field.type}; cast it after reading", field="schema")
        if not field.nullable:
            raise Invalid(f"the column {field.name} may be null; leave out NOT NULL", field="schema")
    return made
