"""A batch read, whose bounds are fixed when the DataFrame is made."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from ortoo.client import Queue
from ortoo.common.errors import Invalid
from ortoo.spark.arrow.schema import MAP, utc_schema
from ortoo.spark.core.cluster_options import check_names
from ortoo.spark.core.columns import BY_NAME, chosen_names
from ortoo.spark.core.frozen_modules import freeze_modules
from ortoo.spark.core.link import ClusterLink, link_to
from ortoo.spark.core.read_options import ReadOptions
from ortoo.spark.reading.bounds import end_offsets, start_offsets
from ortoo.spark.reading.data_loss import clip_to_stored
from ortoo.spark.reading.planning import QueueSlice, plan
from ortoo.spark.reading.topic_state import OffsetSpan, complete_state

ROWS_MAX = 8_192
"""Approximate number of rows of a batch for Spark; smaller stored batches are merged."""
BYTES_MAX = 4 << 20
"""Approximate limit in bytes of such a batch."""


class MessageTask(InputPartition):
    """A task of a read, with its slices of queues."""

    def __init__(self, slices: tuple[QueueSlice, ...]) -> None:
        """The slices, in the order of reading."""
        self.slices = slices
        super().__init__(slices)

    def __repr__(self) -> str:
        return f"MessageTask({', '.join(f'{s.queue} {s.begin}..{s.end}' for s in self.slices)})"


class TaskReader:
    """Reads the slices of a task on an executor as Arrow batches. It is pickled, so it holds only plain values."""

    def __init__(self, options: ReadOptions, schema: Any) -> None:
        """Check that `schema` has only known columns, with their types. Errors: Invalid."""
        chosen_names(tuple(schema.names))
        self.options = options
        self.schema = arrow_schema(schema)

    def plan(self, ranges: Mapping[Queue, OffsetSpan], topic_ids: Mapping[str, int]) -> list[MessageTask]:
        """Divide `ranges` into tasks; equal arguments always give equal tasks."""
        options = self.options
        tasks = plan(
            ranges,
            topic_ids,
            min_partitions=options.min_partitions,
            max_records=options.max_records,
            max_queues_per_task=options.max_queues_per_task,
        )
        return [MessageTask(slices) for slices in tasks]

    def batches(self, task: Any) -> Iterator[Any]:
        """Yield the matching messages of a task as Arrow batches.

        If a read has no messages, Spark gives it one task that is not a MessageTask, which yields nothing. Errors:
        DataLoss, Unavailable after `fetchTimeoutMs`, Invalid.
        """
        from ortoo.spark.arrow.batch import BatchDecoder
        from ortoo.spark.reading.slice_reader import Remainder, read_slice

        options = self.options
        filter, timeout_ms = options.filter, options.fetch_timeout_ms
        decoder = BatchDecoder(self.schema)
        waiting: list[Any] = []
        rows = size_bytes = 0
        for part in task.slices if isinstance(task, MessageTask) else ():
            link = link_to(options.cluster)
            remainder = Remainder(link, part, options.on_data_loss)
            for received in read_slice(link, remainder, columns=decoder.fields, filter=filter, timeout_ms=timeout_ms):
                batch = decoder.decode(received)
                if rows and (rows + len(batch) > ROWS_MAX or size_bytes + received.size_bytes > BYTES_MAX):
                    yield _concat_batches(waiting)
                    waiting, rows, size_bytes = [], 0, 0
                waiting.append(batch)
                rows += len(batch)
                size_bytes += received.size_bytes
        if waiting:
            yield _concat_batches(waiting)
        freeze_modules()


class BatchReader(DataSourceReader):
    """Plans a batch read and reads its tasks.

    It has no `pushFilters`: Spark reuses the plan of one query for later queries of the same frame. Those queries would
    lack the rows that a pushed filter removed.
    """

    def __init__(self, options: ReadOptions, schema: Any) -> None:
        """Read `options` as rows of `schema`, a pyspark StructType."""
        self._options = options
        self._tasks = TaskReader(options, schema)

    def partitions(self) -> Sequence[Any]:
        """Plan the tasks of the read. Errors: Invalid, NotFound, DataLoss, Unavailable."""
        check_names(self._options.cluster)
        return self._tasks.plan(*self._ranges_to_read(link_to(self._options.cluster)))

    def read(self, partition: Any) -> Iterator[Any]:
        """Read one task; yields Arrow batches."""
        return self._tasks.batches(partition)

    def _ranges_to_read(self, link: ClusterLink) -> tuple[dict[Any, OffsetSpan], dict[str, int]]:
        options = self._options
        state = complete_state(link, options)
        starts, ends = start_offsets(link, options, state), end_offsets(link, options, state)
        ranges: dict[Any, OffsetSpan] = {}
        for queue, begin in starts.items():
            requested = OffsetSpan(begin, ends[queue])
            ranges[queue], _ = clip_to_stored(queue, requested, state.ranges[queue], options.on_data_loss)
        return ranges, dict(state.topic_ids)


def _concat_batches(batches: list[Any]) -> Any:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


def arrow_schema(schema: Any) -> Any:
    """The Arrow schema of a pyspark StructType. Errors: Invalid for a column with an unexpected type."""
    made = utc_schema(schema)
    for field in made:
        column = BY_NAME[field.name]
        if field.type != _TYPES[column.ddl]:
            raise Invalid(
                f"the column {field.name} is {column.ddl}, not {field.type}; cast it after reading", field="schema"
            )
        if not field.nullable and not column.is_required:
            raise Invalid(f"the column {field.name} may be null; remove NOT NULL", field="schema")
    return made


_TYPES = {
    "string": pa.string(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "binary": pa.binary(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "array<string>": pa.list_(pa.field("element", pa.string())),
    "map<string,string>": MAP,
}
"""The Arrow types that Spark expects for the columns."""
