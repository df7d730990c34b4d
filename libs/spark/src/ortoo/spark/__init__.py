"""Ortoo topics as Spark sources and sinks, in pure Python.

    spark.read.format("ortoo").option("subscribe", "orders").load()

works without a registration where this package is installed; where it came by `--py-files`, call `register(spark)`.
"""

from typing import Any

__all__ = ["register"]


def register(spark: Any) -> None:
    """Make the format "ortoo" known to a Spark session."""
    from ortoo.spark.format.source import OrtooDataSource  # here, so that the package's plain parts need no Spark

    spark.dataSource.register(OrtooDataSource)
