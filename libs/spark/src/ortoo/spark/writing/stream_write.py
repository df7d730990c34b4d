"""A streaming write: `df.writeStream.format("ortoo")`."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pyspark.sql.datasource import DataSourceStreamArrowWriter

from ortoo.spark.writing.message_writer import MessageWriter, TaskCommitMessage
from ortoo.spark.writing.write_options import parse


class StreamWriter(DataSourceStreamArrowWriter):
    """The sink of a streaming query. It has no state, because Spark makes another writer for each batch and commit."""

    def __init__(self, options: Mapping[str, str], schema: Any, overwrite: bool) -> None:
        """Check options, columns and the topic. Errors: Invalid, NotFound."""
        del overwrite  # set for output mode complete, whose rows are written like others
        self._options = parse(options, schema)
        self._writer = MessageWriter(self._options)

    def write(self, iterator: Iterator[Any]) -> TaskCommitMessage:
        """Write the rows of one task."""
        return self._writer.write(iterator)

    def commit(self, messages: Sequence[TaskCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Record that all tasks of a batch are complete. A repetition changes nothing."""
        del batchId  # the messages of the tasks have it
        self._writer.commit(messages)

    def abort(self, messages: Sequence[TaskCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Do nothing: Spark repeats a failed batch with the same ids, so that no message is stored twice."""
