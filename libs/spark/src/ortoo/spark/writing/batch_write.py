"""A batch write: `df.write.format("ortoo").mode("append")`."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pyspark.sql.datasource import DataSourceArrowWriter

from ortoo.common.errors import Invalid
from ortoo.common.process.randomness import Randomness
from ortoo.spark.core.cluster_options import check_names
from ortoo.spark.writing.message_writer import MessageWriter, TaskCommitMessage
from ortoo.spark.writing.write_options import parse


class BatchWriter(DataSourceArrowWriter):
    """Writes the rows of a batch job. It is pickled to the job's tasks, so that all tasks have the same job id."""

    def __init__(self, options: Mapping[str, str], schema: Any, overwrite: bool) -> None:
        """Check options, columns and the topic. Errors: Invalid, NotFound."""
        if overwrite:
            raise Invalid("a topic cannot be overwritten; use mode append", field="mode")
        self._options = parse(options, schema)
        self._writer = MessageWriter(self._options, self._options.job_id or Randomness().id_text())
        check_names(self._options.cluster)
        self._writer.check_target()

    def write(self, iterator: Iterator[Any]) -> TaskCommitMessage:
        """Write the rows of one task."""
        return self._writer.write(iterator)

    def commit(self, messages: Sequence[TaskCommitMessage | None]) -> None:
        """Record that all tasks are complete, so that a repetition of the job writes nothing."""
        self._writer.commit(messages)

    def abort(self, messages: Sequence[TaskCommitMessage | None]) -> None:
        """Do nothing: stored messages stay, and a repetition with the same job id does not store them twice."""
