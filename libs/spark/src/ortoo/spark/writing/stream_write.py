"""A streaming write: `df.writeStream.format("ortoo")`."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pyspark.sql.datasource import DataSourceStreamArrowWriter

from ortoo.spark.writing.message_writer import MessageWriter, TaskWritten
from ortoo.spark.writing.write_options import parse


class StreamWriter(DataSourceStreamArrowWriter):
    """Made anew for each batch and for each commit, so it keeps nothing."""

    def __init__(self, options: Mapping[str, str], schema: Any, overwrite: bool) -> None:
        """Check options, columns and the topic. Errors: Invalid, NotFound."""
        del overwrite  # Spark's word for output mode complete: rows of an aggregate are messages like others
        self._options = parse(options, schema)
        self._writer = MessageWriter(self._options)

    def write(self, iterator: Iterator[Any]) -> TaskWritten:
        """Write the rows of one task."""
        self._writer.check_target()
        return self._writer.write(iterator)

    def commit(self, messages: Sequence[TaskWritten | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """All tasks of a batch are done: remember it. Repeating this changes nothing."""
        done = [message for message in messages if message is not None]
        if done:
            self._writer.commit(done, done[0].query_id, batchId)

    def abort(self, messages: Sequence[TaskWritten | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """The batch failed: it comes again with the same ids, under which nothing is stored twice."""
