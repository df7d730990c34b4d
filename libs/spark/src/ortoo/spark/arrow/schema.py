"""Conversion of Spark schemas to Arrow schemas, the same for every version of Spark."""

import inspect
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema

MAP_FIELDS: Final = (pa.field("key", pa.string(), nullable=False), pa.field("value", pa.string()))
MAP: Final = pa.map_(*MAP_FIELDS)
"""The type of a map of texts."""
_UTC: Final = {"timezone": "UTC"} if "timezone" in inspect.signature(to_arrow_schema).parameters else {}
"""Spark 4.0 uses UTC without this argument."""


def utc_schema(schema: Any) -> Any:
    """The pyarrow schema for a pyspark StructType; its timestamps are in UTC."""
    return to_arrow_schema(schema, **_UTC)
