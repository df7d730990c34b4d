"""A separate driver for what the shared session must not see: a broken package, failing tasks and workers.

python -m tests.spark.other_driver ADDRESS SOURCE TARGET FOLDER

Prints its results as one line of JSON. `local[2,3]` lets Spark run each task up to three times.
"""

import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader

import ortoo.spark
from ortoo.common.process.clock import SystemClock
from ortoo.spark.core.read_options import parse
from ortoo.spark.format.source import OrtooDataSource
from ortoo.spark.reading.batch_read import BatchReader
from ortoo.spark.reading.stream_read import StreamReader
from tests.spark.session import spark_session

FAILURES = "OTHER_DRIVER_FAILURES"
"""The variable with the folder in which workers leave a file for each failure."""


class DyingSource(OrtooDataSource):
    """The source under test, but the worker of each task's first attempt is killed during it."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "dying"

    def reader(self, schema: Any) -> DataSourceReader:
        """The plan of the source, with dying workers."""
        return DyingBatchReader(parse(self.options, streaming=False), schema)

    def streamReader(self, schema: Any) -> DataSourceStreamReader:
        """The source of a query, with dying workers."""
        return DyingStreamReader(parse(self.options, streaming=True), schema)


class DyingBatchReader(BatchReader):
    """The batch reader, whose workers die."""

    def read(self, partition: Any) -> Iterator[Any]:
        """The rows of one task; the first attempt kills its worker."""
        return dying("read", super().read(partition))


class DyingStreamReader(StreamReader):
    """The stream reader, whose workers die."""

    def read(self, partition: Any) -> Iterator[Any]:
        """The rows of one task; the first attempt kills its worker."""
        return dying("copy", super().read(partition))


def dying(work: str, batches: Iterator[Any]) -> Iterator[Any]:
    """The same batches; the worker is killed during a task's first attempt."""
    yield next(batches)
    if is_first_attempt(work):
        os.kill(os.getpid(), signal.SIGKILL)
    yield from batches


def is_first_attempt(work: str) -> bool:
    """Whether Spark runs this task for the first time; records it in a file named by the task."""
    task = TaskContext.get()
    assert task is not None, "this runs in a task"
    if task.attemptNumber():
        return False
    Path(os.environ[FAILURES], f"{work}-{task.partitionId()}").touch()
    return True


def tell(what: str) -> None:
    """Print a progress line, to locate slow steps."""
    sys.stderr.write(f"{SystemClock().now_ms()} {what}\n")


def main(address: str, source: str, target: str, folder: Path) -> dict[str, Any]:
    """The results by name."""
    seen: dict[str, Any] = {}
    failures = folder / "failures"
    failures.mkdir()
    os.environ[FAILURES] = str(failures)
    with spark_session(folder, master="local[2,3]") as spark:
        rows = spark.read.format("ortoo").options(address=address, subscribe=source)
        tell("Spark is up")
        try:
            rows.load()
        except Py4JJavaError as error:
            seen["unregistered"] = str(error).split("\n\tat ")[0]
        ortoo.spark.register(spark)
        tell("the format was looked for")
        seen["registered"] = rows.load().count()
        tell("the topic was counted")

        spark.dataSource.register(DyingSource)
        dying = spark.read.format("dying").options(address=address, subscribe=source, minPartitions=4).load()
        places = dying.select("enode", "queue_id", "offset").collect()
        seen["read"] = [len(places), len(set(places))]
        tell("the topic was read by dying workers")

        stream = spark.readStream.format("dying").options(address=address, subscribe=source)
        sink = stream.option("startingOffsets", "earliest").load().select("body", "born_at").writeStream.format("ortoo")
        sink = sink.options(address=address, topic=target, deliverySemantics="exactly-once", sinkId=target)
        query = sink.option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True).start()
        query.awaitTermination()
        tell("the topic was copied by dying workers")
    seen["failures"] = sorted(file.name for file in failures.iterdir())
    return seen


if __name__ == "__main__":
    address, source, target, folder = sys.argv[1:]
    sys.stdout.write(json.dumps(main(address, source, target, Path(folder))) + "\n")
