"""Lets `format("ortoo")` work after `pip install`: Spark searches modules `pyspark_*` for a `DefaultSource`."""

from ortoo.spark.format.source import OrtooDataSource as DefaultSource

__all__ = ["DefaultSource"]
