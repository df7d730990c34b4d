"""The options of a topic as a table of a catalog: `CREATE TABLE orders USING ortoo OPTIONS (…)`.

Spark hands these options to a Python source only when it creates the table, and a second time with a prefix. A read
gets only the stored schema. The options are therefore stored with the schema, as metadata of its first column.
"""

import json
from collections.abc import Mapping
from typing import Any, Final

from ortoo.common.errors import Invalid
from ortoo.spark.core.columns import REQUIRED

PREFIX: Final = "option."
_METADATA: Final = "ortoo.options"
_PROPERTIES: Final = frozenset(
    {"collation", "comment", "external", "is_managed_location", "location", "owner", "path", "provider"}
)
"""Properties that Spark adds to the options of a table. They are no options of a read."""


def without_repetition(options: Mapping[str, str]) -> dict[str, str]:
    """Options, by names in lower case, without those that Spark adds for a table of a catalog."""
    of_table = {name.removeprefix(PREFIX): value for name, value in options.items() if name.startswith(PREFIX)}
    if not of_table:
        return dict(options)
    left_out = _PROPERTIES - of_table.keys()
    kept = {name: value for name, value in options.items() if not name.startswith(PREFIX) and name not in left_out}
    return of_table | kept


def schema_with(ddl: str, options: Mapping[str, str]) -> Any:
    """The schema of a table as a pyspark StructType that has its options. Errors: Invalid for credentials."""
    from pyspark.sql import types

    for name in ("accessKey", "secretKey"):
        if options.get(name.lower()):
            raise Invalid(
                "a catalog stores the options of a table as plain text; set ORTOO_ACCESS_KEY and ORTOO_SECRET_KEY in "
                "the environment of the driver instead",
                field=name,
            )
    text = types.StringType()
    kinds = {
        "string": text, "int": types.IntegerType(), "bigint": types.LongType(), "binary": types.BinaryType(),
        "timestamp": types.TimestampType(), "array<string>": types.ArrayType(text),
        "map<string,string>": types.MapType(text, text),
    }  # fmt: skip
    made = types.StructType()
    for column in ddl.split(", "):
        name, kind = column.removesuffix(REQUIRED).split(" ")
        about = {} if made.fields else {_METADATA: json.dumps(dict(options), sort_keys=True)}
        made.add(name.strip("`"), kinds[kind], not column.endswith(REQUIRED), about)
    return made


def of_schema(schema: Any) -> dict[str, str]:
    """The options in a stored schema; none if the schema is not that of a table."""
    for field in schema.fields:
        if text := (field.metadata or {}).get(_METADATA):
            return dict(json.loads(text))
    return {}
