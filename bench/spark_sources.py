"""Sources that the Spark benchmark compares with: rows that the worker already holds, and our topic row by row."""

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema

from ortoo.spark.core import columns
from ortoo.spark.core.read_options import parse
from ortoo.spark.reading.batch_read import BatchReader

BATCH_ROWS = 4_096


class Generator(DataSource):
    """Arrow batches made once in the worker and returned repeatedly: the upper limit of Spark itself."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "bench-generator"

    def schema(self) -> str:
        """The same columns as a topic's."""
        names = columns.chosen_names(tuple(filter(None, self.options.get("columns", "").split(","))))
        return columns.ddl(names)

    def reader(self, schema: Any) -> Any:
        """The plan."""
        return GeneratorReader(dict(self.options), schema)


class GeneratorReader(DataSourceReader):
    """`rows` rows in equal tasks."""

    def __init__(self, options: dict[str, str], schema: Any) -> None:
        self._rows, self._tasks = int(options["rows"]), int(options["tasks"])
        self._body_bytes = int(options["bodybytes"])
        self._schema = to_arrow_schema(schema, timezone="UTC")

    def partitions(self) -> Sequence[Any]:
        """Tasks of equal size."""
        return [InputPartition(self._rows // self._tasks) for _ in range(self._tasks)]

    def read(self, partition: Any) -> Iterator[Any]:
        """Return the same batch repeatedly."""
        batch = _batch(self._schema, self._body_bytes)
        for _ in range(partition.value // BATCH_ROWS):
            yield batch
        if rest := partition.value % BATCH_ROWS:
            yield batch.slice(0, rest)


class RowByRow(DataSource):
    """A topic read as tuples, as most Python sources are written."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "bench-tuples"

    def schema(self) -> str:
        """The columns of a read."""
        options = parse(self.options, streaming=False)
        return columns.ddl(options.columns)

    def reader(self, schema: Any) -> Any:
        """Our reader with other batches."""
        return RowByRowReader(parse(self.options, streaming=False), schema)


class RowByRowReader(BatchReader):
    """Our reader, whose batches are split into tuples."""

    def read(self, partition: Any) -> Iterator[Any]:
        """One tuple a row."""
        for batch in super().read(partition):
            yield from zip(*(column.to_pylist(maps_as_pydicts="strict") for column in batch.columns), strict=True)


def _batch(schema: Any, body_bytes: int) -> Any:
    made = {
        "topic": pa.repeat(pa.scalar("bench"), BATCH_ROWS),
        "enode": pa.repeat(pa.scalar("enode-0"), BATCH_ROWS),
        "queue_id": pa.repeat(pa.scalar(3, pa.int32()), BATCH_ROWS),
        "offset": pa.array(range(BATCH_ROWS), pa.int64()),
        "message_id": pa.array([f"00c0ffee00c0ffee-enode-0-3-{n}" for n in range(BATCH_ROWS)]),
        "tag": pa.repeat(pa.scalar("tag"), BATCH_ROWS),
        "keys": pa.array([[f"key-{n}"] for n in range(BATCH_ROWS)]),
        "body": pa.array([bytes(body_bytes)] * BATCH_ROWS),
        "properties": pa.array(
            [[("region", "west"), ("n", str(n))] for n in range(BATCH_ROWS)], pa.map_(pa.string(), pa.string())
        )
        if "properties" in schema.names
        else None,
    }
    times = pa.repeat(pa.scalar(1_790_000_000_000_000, pa.int64()), BATCH_ROWS)
    arrays = []
    for field in schema:
        array = times if field.name in ("stored_at", "born_at") else made.get(field.name)
        arrays.append(pa.nulls(BATCH_ROWS, field.type) if array is None else array.cast(field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
