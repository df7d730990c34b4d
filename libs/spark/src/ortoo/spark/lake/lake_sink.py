"""A streaming sink that writes a lake's files on executors and adds them on the driver, each batch once."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark import TaskContext
from pyspark.sql.datasource import DataSource, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.pandas.types import to_arrow_schema

from ortoo.common.errors import Invalid
from ortoo.common.process.randomness import Randomness
from ortoo.spark.lake.table import DATE, Lake, NewFile


class LakeDataSource(DataSource):
    """The format `ortoo-lake`, for writing streams of messages into a lake."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "ortoo-lake"

    def streamWriter(self, schema: Any, overwrite: bool) -> Any:  # noqa: N802 - Spark's name
        """The sink of a streaming query."""
        del overwrite
        return LakeWriter(Lake(self.options["path"], self.options.get("lakeformat", "delta")), schema)


@dataclass
class LakeWritten(WriterCommitMessage):
    """The files of one task."""

    query_id: str = ""
    files: list[NewFile] = field(default_factory=list)


class LakeWriter(DataSourceStreamArrowWriter):
    """Writes rows that have a column `stored_at`, by its date."""

    def __init__(self, lake: Lake, schema: Any) -> None:
        """Write rows of a pyspark schema."""
        self._lake = lake
        self._rows = to_arrow_schema(schema, timezone="UTC")
        if "stored_at" not in self._rows.names:
            raise Invalid("a lake is ordered by the date of `stored_at`; leave that column in", field="columns")

    def write(self, iterator: Iterator[Any]) -> LakeWritten:
        """Write the rows of one task: one file a date, under a name that nobody has again."""
        open_files: dict[str, tuple[str, Any, int]] = {}
        name = Randomness().id_text()
        for batch in iterator:
            dates = pc.strftime(batch.column("stored_at"), "%Y-%m-%d")
            distinct = pc.unique(dates).to_pylist()
            for date in distinct:
                rows = batch if len(distinct) == 1 else batch.filter(pc.equal(dates, date))
                if date not in open_files:
                    path = self._lake.new_file(date, name)
                    writer = pq.ParquetWriter(self._lake.folder / path, batch.schema, compression="zstd")
                    open_files[date] = (path, writer, 0)
                path, writer, count = open_files[date]
                writer.write_batch(rows)
                open_files[date] = (path, writer, count + len(rows))
        files = []
        for date, (path, writer, count) in open_files.items():
            writer.close()
            files.append(NewFile(path, date, count, (self._lake.folder / path).stat().st_size))
        task = TaskContext.get()
        return LakeWritten(str(task.getLocalProperty("sql.streaming.queryId")) if task else "", files)

    def commit(self, messages: Sequence[LakeWritten | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Add the files of all tasks. A batch that was added before changes nothing."""
        done = [message for message in messages if message is not None]
        if done:
            files = [file for message in done for file in message.files]
            self._lake.add(done[0].query_id, batchId, files, lake_schema(self._rows))

    def abort(self, messages: Sequence[LakeWritten | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Files that were written stay outside the lake until it is cleaned."""


def lake_schema(rows: Any) -> Any:
    """The pyarrow schema of a lake for rows of a pyarrow schema: the same columns and the date."""
    return pa.schema([*rows, pa.field(DATE, pa.string())])
