"""Counts of a lake's rows by readers other than Spark."""

import duckdb
import polars

from ortoo.client import Message
from ortoo.spark.lake.table import Lake

COUNTS = 'count(*), count(distinct (enode, queue_id, "offset")), sum(octet_length(body)), count(tag)'


def of_duckdb(lake: Lake) -> tuple[int, ...]:
    """Numbers of rows, positions, body bytes and tags of a lake, counted by DuckDB."""
    messages = lake.table().to_pyarrow_dataset()
    found = duckdb.sql(f"select {COUNTS} from messages").fetchall()
    assert messages is not None
    return tuple(map(int, found[0]))


def of_polars(lake: Lake) -> tuple[int, ...]:
    """The same numbers, counted by polars."""
    messages = polars.scan_delta(lake.path, storage_options=dict(lake.storage))
    column = polars.col
    found = messages.select(
        rows=polars.len(),
        places=polars.struct("enode", "queue_id", "offset").n_unique(),
        size=column("body").bin.size().sum(),
        tags=column("tag").count(),
    )
    return tuple(map(int, found.collect().row(0)))


def expected_counts(sent: list[Message]) -> tuple[int, ...]:
    """The numbers for a lake that holds each of these messages once."""
    return len(sent), len(sent), sum(len(each.body) for each in sent), sum(each.tag is not None for each in sent)
