"""Sinks whose tasks and commits fail at every step or run twice concurrently store a batch once."""

import os
import select
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed; run `make spark-setup`")

from pyspark import TaskContext
from pyspark.sql.types import StringType, StructField, StructType, TimestampType

from ortoo.common.errors import Conflict
from ortoo.spark.writing.stream_write import StreamWriter
from tests.repo.tree import ROOT
from tests.spark.sending import stored
from tests.spark.session import Broker

SCHEMA = StructType([StructField("body", StringType()), StructField("born_at", TimestampType())])
ROWS = 20_000
TASKS = 2
EAGER_MIB = 192
IN_FLIGHT_MIB = 16
"""The default of the option inFlightBytes, in MiB."""
QUIET_S = 2.0


def rows(task: int, *, fail_at: int = ROWS) -> Iterator[Any]:
    """The rows of one task, in batches; it fails after `fail_at` rows."""
    for begin in range(0, ROWS, 1_000):
        if begin >= fail_at:
            raise OSError("the disk that rows come from is gone")
        bodies = [f"{task}-{number}" for number in range(begin, begin + 1_000)]
        born_at = pa.repeat(pa.scalar(1_700_000_000_000_000, pa.timestamp("us", tz="UTC")), 1_000)
        yield pa.RecordBatch.from_arrays([pa.array(bodies), born_at], names=["body", "born_at"])


class Batch:
    """One batch of a query as Spark runs it; each step may be left out, repeated or fail."""

    def __init__(self, broker: Broker, topic: str, number: int) -> None:
        """The batch with this number of the query `q`, into an exactly-once sink."""
        self._number = number
        self._options = {
            "address": broker.address,
            "topic": topic,
            "deliverysemantics": "exactly-once",
            "sinkid": topic,
        }

    def write(self, task: int, *, fail_at: int = ROWS) -> Any:
        """One attempt of one task."""
        with self.as_task(task):
            return self._new_writer().write(rows(task, fail_at=fail_at))

    def write_twice_at_once(self, task: int) -> list[Any]:
        """Two concurrent attempts of one task."""
        with self.as_task(task), ThreadPoolExecutor(2) as threads:
            attempts = [threads.submit(self._new_writer().write, rows(task)) for _ in range(2)]
        return [attempt.result() for attempt in attempts]

    def _new_writer(self) -> StreamWriter:
        return StreamWriter(self._options, SCHEMA, overwrite=False)

    @contextmanager
    def as_task(self, task: int) -> Iterator[None]:
        """Set this process's task context as Spark does."""
        here = TaskContext._getOrCreate()
        here._partitionId = task
        here._localProperties = {"streaming.sql.batchId": str(self._number), "sql.streaming.queryId": "q"}
        try:
            yield
        finally:
            TaskContext._setTaskContext(None)

    def write_all(self) -> list[Any]:
        """One attempt of each task."""
        return [self.write(task) for task in range(TASKS)]

    def commit(self, written: list[Any]) -> None:
        """The driver's step after all tasks have ended."""
        self._new_writer().commit(written, self._number)

    def abort(self) -> None:
        """The driver's step after a task failed permanently; Spark passes no messages then."""
        self._new_writer().abort([None] * TASKS, self._number)


def test_a_batch_is_stored_once_wherever_its_tasks_or_its_commit_fail(broker: Broker, topic: str) -> None:
    """Check 7: a task fails during a batch. The driver fails before, during and after the commit."""
    batch = Batch(broker, topic, 0)
    batch.write(0)
    with pytest.raises(OSError, match="is gone"):
        batch.write(1, fail_at=ROWS // 2)
    batch.abort()
    again = batch.write_all()
    assert [task.messages for task in again] == [ROWS, ROWS]
    once_more = batch.write_all()
    assert stored(broker, topic) == TASKS * ROWS
    batch.commit(once_more)
    batch.commit(once_more)
    late = batch.write_all()
    assert all(task.skipped for task in late)
    batch.commit(late)
    following = Batch(broker, topic, 1)
    following.commit(following.write_all())
    assert all(task.skipped for task in following.write_all())
    with pytest.raises(Conflict, match="restored from an old copy"):
        batch.write(0)
    assert stored(broker, topic) == 2 * TASKS * ROWS


def test_the_account_stays_when_its_topic_gets_queues_on_another_enode(broker: Broker, topic: str) -> None:
    """A topic grows onto an enode whose name sorts first; a committed batch is still recognised."""
    name = f"{topic[:80]}-grows"
    broker.client.admin.create_topic(name, queue_count=1, enodes=["enode-1"])
    batch = Batch(broker, name, 0)
    batch.commit(batch.write_all())
    broker.client.admin.update_topic(name, add_enodes=["enode-0"])
    assert all(task.skipped for task in batch.write_all())
    following = Batch(broker, name, 1)
    following.commit(following.write_all())
    assert all(task.skipped for task in following.write_all())
    assert stored(broker, name) == 2 * TASKS * ROWS


def test_a_commit_that_comes_late_takes_nothing_back(broker: Broker, topic: str) -> None:
    """A driver that counted as dead commits its batch after its successor has committed the next one."""
    first, second = Batch(broker, topic, 0), Batch(broker, topic, 1)
    late = first.write_all()
    first.commit(first.write_all())
    second.commit(second.write_all())
    with pytest.raises(Conflict, match="restored from an old copy"):
        first.commit(late)
    assert all(task.skipped for task in second.write_all())


def test_two_attempts_of_a_task_at_once_store_its_rows_once(broker: Broker, topic: str) -> None:
    """Check 7: a speculative second attempt sends the same rows at the same time, and the first one counts."""
    attempts = Batch(broker, topic, 0).write_twice_at_once(0)
    assert [attempt.messages for attempt in attempts] == [ROWS, ROWS]
    assert stored(broker, topic) == ROWS


def test_memory_stays_flat_behind_a_broker_that_does_not_answer(broker: Broker, topic: str) -> None:
    """Check 12: while the enodes are frozen the sink takes at most 16 MiB. None of 192 MiB is lost or kept."""
    for enode in broker.cluster.enodes:
        enode.freeze()
    try:
        command = [sys.executable, "-m", "tests.spark.eager_writer", broker.address, topic, str(EAGER_MIB)]
        writer = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE)
        taken = lines_until_quiet(writer).count(b"taken")
        assert 0 < taken <= IN_FLIGHT_MIB + 8
    finally:
        for enode in broker.cluster.enodes:
            enode.thaw()
    rest, _ = writer.communicate(timeout=300)
    _, messages, grown_mib = rest.splitlines()[-1].split()
    assert int(messages) == stored(broker, topic) == EAGER_MIB << 10
    assert int(grown_mib) < EAGER_MIB / 2


def lines_until_quiet(process: subprocess.Popen[bytes]) -> bytes:
    """The output of a process until it has been silent for a while after the first line."""
    assert process.stdout is not None
    said = b""
    while not said or select.select([process.stdout], [], [], QUIET_S)[0]:
        found = os.read(process.stdout.fileno(), 65_536)
        if not found:
            break
        said += found
    return said
