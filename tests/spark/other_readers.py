"""What readers other than Spark count in a lake."""

import duckdb
import polars

from ortoo.client import Message
from ortoo.spark.lake.table import Lake

COUNTS = 'count(*), count(distinct (enode, queue_id, "offset")), sum(octet_length(body)), count(tag)'


def of_duckdb(lake: Lake) -> tuple[int, ...]:
    """The rows, the places, the bytes of all bodies and the tags of a lake, counted by DuckDB."""
    messages = lake.table().to_pyarrow_dataset()
    found = duckdb.sql(f"select {COUNTS} from messages").fetchall()
    assert messages is not None
    return tuple(map(int, found[0]))


def of_polars(lake: Lake) -> tuple[int, ...]:
    """The same, counted by polars."""
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
    """What both count in a lake that holds these messages, each once."""
    return len(sent), len(sent), sum(len(each.body) for each in sent), sum(each.tag is not None for each in sent)
