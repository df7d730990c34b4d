"""A task of a write: rows are sent in batches and stored before the task ends."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage

from ortoo.client import Conflict
from ortoo.client.produce.routes import Route, query_route
from ortoo.common.process.randomness import Randomness
from ortoo.spark.core.frozen_modules import freeze_modules
from ortoo.spark.core.link import ClusterLink, link_to
from ortoo.spark.writing.batch_sender import BatchSender
from ortoo.spark.writing.invalid_rows import SendableRows
from ortoo.spark.writing.lanes import AddressedBatch, Lanes, TaskIdentity
from ortoo.spark.writing.sink_progress import SinkProgress
from ortoo.spark.writing.write_options import WriteOptions

PUT_BYTES_MAX = 4 << 20
"""The approximate number of bytes that are given to the connection's thread at once."""


@dataclass
class TaskCommitMessage(WriterCommitMessage):
    """The result of one task."""

    query_id: str
    """The query or job; the driver's side of a stream does not have it."""
    batch_id: int = 0
    messages: int = 0
    skipped: bool = False
    """The whole batch was committed before, so that nothing was written."""


@dataclass(frozen=True)
class MessageWriter:
    """Writes the rows of one task. The writer is pickled to executors, so it holds plain values only."""

    options: WriteOptions
    job_id: str = ""
    """The id of a batch write, the same for all attempts. In `foreachBatch` it is the id of Spark's query, unless an
    option names it."""

    def check_target(self) -> dict[str, Route]:
        """The queues of the topics of the options. Errors: NotFound if one does not exist or accepts no messages."""
        topics = filter(None, (self.options.topic, self.options.invalid_rows_topic))
        return {topic: open_route(link_to(self.options.cluster), topic) for topic in topics}

    def write(self, batches: Iterator[Any]) -> TaskCommitMessage:
        """Write rows, given as Arrow batches.

        Errors: Unavailable, Conflict, NotFound, and Invalid for a row without a topic for invalid rows.
        """
        options = self.options
        link = link_to(options.cluster)
        routes = self.check_target()
        query_id, batch_id, partition_id = self._task_ids()
        progress = self._sink_progress(query_id)
        if progress is not None and progress.begin(link, batch_id):
            for _ in batches:
                pass
            return TaskCommitMessage(query_id, batch_id, skipped=True)
        if options.is_repeatable:
            identity = TaskIdentity(f"{options.sink_id}/{query_id}", batch_id, partition_id)
        else:
            identity = TaskIdentity.of_attempt(Randomness())
        stored = self._send(link, identity, routes, batches)
        freeze_modules()
        return TaskCommitMessage(query_id, batch_id, stored)

    def commit(self, written: Sequence[TaskCommitMessage | None]) -> None:
        """Record a complete batch if the semantics need it. A repetition changes nothing. Errors: Conflict."""
        done = [task for task in written if task is not None]
        if not done or any(task.skipped for task in done):
            return
        progress = self._sink_progress(done[0].query_id)
        if progress is not None:
            progress.commit(link_to(self.options.cluster), done[0].batch_id)
            freeze_modules()

    def _sink_progress(self, query_id: str) -> SinkProgress | None:
        """The account of the sink, if the semantics need one.

        A batch write without an id has none, because no other write can repeat it. An account would stay forever.
        """
        options = self.options
        is_unnamed = query_id == self.job_id and not (options.job_id or options.sink_id)
        if options.semantics != "exactly-once" or is_unnamed:
            return None
        return SinkProgress(options.sink_id or query_id, query_id, options.topic)

    def _task_ids(self) -> tuple[str, int, int]:
        """The query or job, the batch and the partition.

        A batch write inside `foreachBatch` is a part of Spark's batch, and a repetition of that batch repeats it.
        """
        task, options = TaskContext.get(), self.options
        assert task is not None, "a task runs in Spark"
        batch = task.getLocalProperty("streaming.sql.batchId")
        query = task.getLocalProperty("sql.streaming.queryId")
        if options.batch_id is not None or batch is None:
            return self.job_id, options.batch_id or 0, task.partitionId()
        return options.job_id or str(query), int(batch), task.partitionId()

    def _send(self, link: ClusterLink, identity: TaskIdentity, routes: dict[str, Route], batches: Iterator[Any]) -> int:
        options, clock = self.options, link.clock

        def route_of(topic: str) -> Route:
            if topic not in routes:
                routes[topic] = open_route(link, topic)
            return routes[topic]

        rows = SendableRows(options, route_of)
        lanes = Lanes(route_of, identity, options.codec)
        began_s, taken = clock.monotonic_s(), 0
        sender = BatchSender(
            link.connection, in_flight_bytes=options.in_flight_bytes, timeout_ms=options.delivery_timeout_ms
        )
        with link.enter_context(sender):
            try:
                for batch in batches:
                    for messages in rows.messages(batch, clock.now_ms()):
                        for some in _grouped(lanes.add(messages, clock.now_ms())):
                            link.run(sender.put(some))
                    taken += len(batch)
                    if options.rate_max:
                        link.sleep(max(0.0, taken / options.rate_max - (clock.monotonic_s() - began_s)))
                for some in _grouped(lanes.finish(clock.now_ms())):
                    link.run(sender.put(some))
                return link.run(sender.flush())
            except Conflict as error:
                if not options.is_repeatable or error.field != "batch.first_sequence":
                    raise
                raise Conflict(
                    "an earlier attempt of this task wrote other rows. Repeated tasks must have the same rows in the "
                    f"same order (after a shuffle, sort within partitions). {error.message}"
                ) from error


def open_route(link: ClusterLink, topic: str) -> Route:
    """The queues of a topic; waits while all its enodes are down. Errors: NotFound, Unavailable."""
    return link.when_available(lambda: link.run(query_route(link.connection, topic)))


def _grouped(batches: Iterator[AddressedBatch]) -> Iterator[list[AddressedBatch]]:
    """The batches in groups of `PUT_BYTES_MAX`: each call of another thread costs as much as encoding 1,000 rows."""
    group, size_bytes = list[AddressedBatch](), 0
    for addressed in batches:
        group.append(addressed)
        size_bytes += len(addressed.batch.records)
        if size_bytes >= PUT_BYTES_MAX:
            yield group
            group, size_bytes = [], 0
    if group:
        yield group
