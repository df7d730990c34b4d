"""Spark's schemas as Arrow's, the same for every version of Spark."""

import inspect
from typing import Any, Final

from pyspark.sql.pandas.types import to_arrow_schema

_UTC: Final = {"timezone": "UTC"} if "timezone" in inspect.signature(to_arrow_schema).parameters else {}
"""Spark 4.0 takes UTC without being told."""


def utc_schema(schema: Any) -> Any:
    """The pyarrow schema of a pyspark StructType; its times are UTC."""
    return to_arrow_schema(schema, **_UTC)
