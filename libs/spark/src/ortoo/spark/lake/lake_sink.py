"""A streaming sink for lakes: executors write files, and the driver adds the files of each batch once."""

import datetime
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark import TaskContext
from pyspark.sql.datasource import DataSource, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.pandas.types import to_arrow_schema

from ortoo.common.errors import Invalid
from ortoo.common.process.randomness import Randomness
from ortoo.spark.lake.accounts import LakeAccounts
from ortoo.spark.lake.checkpoint import Checkpoint
from ortoo.spark.lake.table import DATE, Lake, NewFile


class LakeDataSource(DataSource):
    """The format `ortoo-lake` of Spark, which streams messages into a lake."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "ortoo-lake"

    def streamWriter(self, schema: Any, overwrite: bool) -> Any:  # noqa: N802 - Spark's name
        """The sink of a streaming query."""
        del overwrite
        given = {name.lower(): value for name, value in self.options.items()}
        storage = tuple(json.loads(given.get("storageoptions", "{}")).items())
        lake = Lake(given["path"], given.get("lakeformat", "delta"), storage)
        continued = tuple(given["continues"].split(",")) if given.get("continues") else ()
        return LakeWriter(lake, schema, given.get("checkpoint", ""), continued)


@dataclass
class LakeCommitMessage(WriterCommitMessage):
    """The files that one task wrote."""

    query_id: str = ""
    files: list[NewFile] = field(default_factory=list)


class LakeWriter(DataSourceStreamArrowWriter):
    """Writes rows into the files of a lake; the date in the column `stored_at` selects the file."""

    def __init__(self, lake: Lake, schema: Any, checkpoint: str = "", continues: Sequence[str] = ()) -> None:
        """Write rows of a pyspark schema. `checkpoint` is the folder whose batches the lake's accounts name.

        `continues` are the accounts that a new checkpoint replaces.
        """
        self._lake = lake
        self._checkpoint = checkpoint
        self._continues = continues
        self._rows = _nullable(to_arrow_schema(schema, timezone="UTC"))
        if "stored_at" not in self._rows.names:
            raise Invalid("missing column `stored_at`, whose date partitions the lake; add it", field="columns")

    def write(self, iterator: Iterator[Any]) -> LakeCommitMessage:
        """Write the rows of one task to one file for each date; returns the files."""
        writers: dict[str, tuple[str, Any, list[Any]]] = {}
        name, folder = Randomness().id_text(), self._lake.files()
        for batches in iterator:
            batch = batches.cast(self._rows)  # Spark uses its session's time zone; dates here are UTC
            dates = pc.strftime(batch.column("stored_at"), "%Y-%m-%d")
            distinct = pc.unique(dates).to_pylist()
            for date in distinct:
                rows = batch if len(distinct) == 1 else batch.filter(pc.equal(dates, date))
                if date not in writers:
                    path = self._lake.new_file(date, name)
                    metadata: list[Any] = []
                    target = folder.open_output_stream(path, buffer_size=1 << 20)
                    options = {"compression": "zstd", "metadata_collector": metadata}
                    writers[date] = (path, (target, pq.ParquetWriter(target, batch.schema, **options)), metadata)
                writers[date][1][1].write_batch(rows)
        files = []
        for date, (path, (target, writer), metadata) in writers.items():
            writer.close()
            target.close()
            size_bytes = folder.get_file_info(path).size
            files.append(NewFile(path, date, size_bytes, statistics(metadata[0])))
        task = TaskContext.get()
        return LakeCommitMessage(str(task.getLocalProperty("sql.streaming.queryId")) if task else "", files)

    def commit(self, messages: Sequence[LakeCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Add the files of all tasks. A batch that was added before is skipped.

        Errors: Conflict when the messages belong to another account of the lake.
        """
        done = [message for message in messages if message is not None]
        if done:
            if self._checkpoint:
                checkpoint = Checkpoint(Path(self._checkpoint))
                LakeAccounts(self._lake).begin_batch(done[0].query_id, checkpoint, batchId, self._continues)
            files = [file for message in done for file in message.files]
            self._lake.add(done[0].query_id, batchId, files, lake_schema(self._rows))

    def abort(self, messages: Sequence[LakeCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Do nothing: the written files stay outside the lake until a later cleanup removes them."""


def statistics(metadata: Any) -> str:
    """Delta's statistics of a Parquet file: the row count, and minimum, maximum and null count of plain columns."""
    found: dict[str, Any] = {"numRecords": metadata.num_rows, "minValues": {}, "maxValues": {}, "nullCount": {}}
    for at in range(metadata.num_columns):
        chunks = [metadata.row_group(group).column(at) for group in range(metadata.num_row_groups)]
        name, parts = chunks[0].path_in_schema, [chunk.statistics for chunk in chunks]
        if "." in name or not all(part is not None and part.has_null_count for part in parts):
            continue
        found["nullCount"][name] = sum(part.null_count for part in parts)
        parts = [part for part in parts if part.has_min_max]
        if parts and (shown := _delta_bounds(min(part.min for part in parts), max(part.max for part in parts))):
            found["minValues"][name], found["maxValues"][name] = shown
    return json.dumps(found)


def _delta_bounds(smallest: Any, largest: Any) -> tuple[Any, Any] | None:
    """Bounds in Delta's format, or None for unsupported types. Times are rounded outwards to milliseconds."""
    if isinstance(smallest, datetime.datetime):
        up = largest + datetime.timedelta(microseconds=999)
        first, last = (f"{moment.strftime(_TIME)}.{moment.microsecond // 1000:03}Z" for moment in (smallest, up))
        return first, last
    is_short = isinstance(smallest, str) and len(largest) <= _TEXT_MAX
    return (smallest, largest) if is_short or isinstance(smallest, int) else None


_TIME = "%Y-%m-%dT%H:%M:%S"
_TEXT_MAX = 100


def lake_schema(rows: Any) -> Any:
    """The pyarrow schema of a lake: the columns of the schema `rows`, and the date."""
    return pa.schema([*_nullable(rows), pa.field(DATE, pa.string())])


def _nullable(rows: Any) -> Any:
    """The same schema with columns that may be null, because those of lakes of earlier snapshots may be."""
    return pa.schema([field.with_nullable(True) for field in rows])
