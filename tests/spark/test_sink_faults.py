"""Sinks whose tasks and commits fail: at every step, and twice at once, a batch is stored once."""

import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed: make spark-setup")

from pyspark import TaskContext
from pyspark.sql.types import StringType, StructField, StructType, TimestampType

from ortoo.spark.writing.stream_write import StreamWriter
from tests.repo.tree import ROOT
from tests.spark.session import Broker, java_found

SCHEMA = StructType([StructField("body", StringType()), StructField("born_at", TimestampType())])
ROWS = 20_000
TASKS = 2


def rows(task: int, *, fail_at: int = ROWS) -> Iterator[Any]:
    """What one task writes, in batches; it fails behind so many rows."""
    for begin in range(0, ROWS, 1_000):
        if begin >= fail_at:
            raise OSError("the disk that rows come from is gone")
        bodies = [f"{task}-{number}" for number in range(begin, begin + 1_000)]
        born_at = pa.repeat(pa.scalar(1_700_000_000_000_000, pa.timestamp("us", tz="UTC")), 1_000)
        yield pa.RecordBatch.from_arrays([pa.array(bodies), born_at], names=["body", "born_at"])


class Batch:
    """One batch of a query as Spark runs it: each step may be left out, repeated or broken."""

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
        """Two attempts of one task beside each other."""
        with self.as_task(task), ThreadPoolExecutor(2) as threads:
            attempts = [threads.submit(self._new_writer().write, rows(task)) for _ in range(2)]
        return [attempt.result() for attempt in attempts]

    def _new_writer(self) -> StreamWriter:
        return StreamWriter(self._options, SCHEMA, overwrite=False)

    @contextmanager
    def as_task(self, task: int) -> Iterator[None]:
        """Let this process be what Spark tells a task it is."""
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
        """What the driver does when all tasks are done."""
        self._new_writer().commit(written, self._number)

    def abort(self) -> None:
        """What the driver does when one failed for good; Spark knows no messages then."""
        self._new_writer().abort([None] * TASKS, self._number)


RETRIED = r"""
import sys
from pathlib import Path
from pyspark import TaskContext
from tests.spark.session import spark_session

def flaky(batches):
    for number, batch in enumerate(batches):
        if number == 2 and TaskContext.get().attemptNumber() == 0:
            raise OSError("the first attempt fails in the middle")
        yield batch

address, topic, folder = sys.argv[1:]
with spark_session(Path(folder), master="local[2,3]") as spark:
    rows = spark.range(0, 60_000, 1, 2).selectExpr("cast(id as string) body", "timestamp_millis(id) born_at")
    sink = rows.mapInArrow(flaky, rows.schema).write.format("ortoo").options(address=address, topic=topic)
    sink.options(deliverySemantics="exactly-once", jobId="retried").mode("append").save()
"""


def stored(broker: Broker, topic: str) -> int:
    """How many messages a topic holds."""
    return sum(end - begin for begin, end in broker.queues(topic).values())


def test_a_batch_is_stored_once_wherever_its_tasks_or_its_commit_fail(broker: Broker, topic: str) -> None:
    """Check 7: a task dies in the middle; the driver dies before the commit, in it, and behind it."""
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
    assert all(task.skipped for task in batch.write_all())
    assert stored(broker, topic) == 2 * TASKS * ROWS


def test_two_attempts_of_a_task_at_once_store_its_rows_once(broker: Broker, topic: str) -> None:
    """Check 7: a speculative second attempt sends the same rows at the same time; whoever is first counts."""
    attempts = Batch(broker, topic, 0).write_twice_at_once(0)
    assert [attempt.messages for attempt in attempts] == [ROWS, ROWS]
    assert stored(broker, topic) == ROWS


@pytest.mark.long
def test_a_task_that_spark_repeats_stores_its_rows_once(broker: Broker, topic: str, folder: Path) -> None:
    """Check 7: with `local[2,3]` Spark itself repeats tasks that failed in the middle."""
    if not java_found():
        pytest.skip("Java 17 is not installed")
    command = [sys.executable, "-c", RETRIED, broker.address, topic, str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert stored(broker, topic) == 60_000
