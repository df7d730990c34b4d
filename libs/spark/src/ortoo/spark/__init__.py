"""Ortoo topics as Spark sources and sinks, in pure Python.

    spark.read.format("ortoo").option("subscribe", "orders").load()

works without registration if this package is installed. With `--py-files`, call `register(spark)` first.
"""

from typing import Any

__all__ = ["register"]


def register(spark: Any) -> None:
    """Register the format "ortoo" in a Spark session."""
    from ortoo.spark.format.source import OrtooDataSource  # imported late, so that other modules need no Spark

    spark.dataSource.register(OrtooDataSource)
