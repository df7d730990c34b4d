"""Spark looks into modules named `pyspark_*` for a `DefaultSource`: so `format("ortoo")` works after `pip install`."""

from ortoo.spark.format.source import OrtooDataSource as DefaultSource

__all__ = ["DefaultSource"]
