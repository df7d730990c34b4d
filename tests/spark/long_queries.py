"""The driver that the long test kills: copies a topic into a lake and into two topics, exactly once and at least once.

python -m tests.spark.long_queries ADDRESS SOURCE FOLDER MESSAGES_A_BATCH

Each copy shuffles its rows, and every attempt of a task gets them in different pieces. Attempts have only the order of
a partition's rows in common, as the documents require. `local[2,8]` lets Spark repeat a task whose worker was killed. A
killed planner ends its query, which is started again.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark.errors import StreamingQueryException

from ortoo.common.process.randomness import Randomness
from ortoo.spark import register
from ortoo.spark.format.source import OrtooDataSource
from ortoo.spark.lake.lake_sink import LakeDataSource, lake_schema
from ortoo.spark.lake.table import Lake
from ortoo.spark.pipeline.runtime.session import session
from ortoo.spark.pipeline.runtime.settings import SparkSettings
from ortoo.spark.writing.stream_write import StreamWriter

COLUMNS = "topic,enode,queue_id,offset,body,stored_at,born_at"
COPIES = {"copy": "exactly-once", "control": "at-least-once"}
"""Suffix of a copy's topic, and its delivery semantics."""
PIECE_ROWS_MAX = 300
LOOK_S = 0.2
FAILURES_MAX = 20


class PiecesSource(OrtooDataSource):
    """The sink under test, whose tasks get their rows in pieces of any size."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "ortoo-pieces"

    def streamWriter(self, schema: Any, overwrite: bool) -> Any:
        """The sink of a query, with rows in random pieces."""
        return PiecesWriter(self._options(), schema, overwrite)


class PiecesWriter(StreamWriter):
    """The writer under test, with Arrow batches split at random."""

    def write(self, iterator: Iterator[Any]) -> Any:
        """Write the rows of one task."""
        return super().write(in_pieces(iterator))


def in_pieces(batches: Iterator[Any]) -> Iterator[Any]:
    """The same rows in the same order, in slices whose sizes differ between attempts."""
    randomness = Randomness()
    for batch in batches:
        at = 0
        while at < len(batch):
            size = 1 + randomness.below(PIECE_ROWS_MAX)
            yield batch.slice(at, size)
            at += size


def main(address: str, source: str, folder: Path, messages: str) -> None:
    """Run all queries until everything that is stored now was processed."""
    conf = (
        "spark.driver.memory=768m",
        "spark.driver.extraJavaOptions=-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
        "spark.driver.host=127.0.0.1",
        "spark.sql.shuffle.partitions=2",
        f"spark.sql.execution.arrow.maxRecordsPerBatch={1 + Randomness().below(2 * PIECE_ROWS_MAX)}",
        # Otherwise Spark does not allow sorting in a stream, not even within the partitions of a batch.
        "spark.sql.streaming.unsupportedOperationCheck=false",
    )
    with session(SparkSettings("local[2,8]", conf)) as spark:
        register(spark)
        spark.dataSource.register(PiecesSource)
        spark.dataSource.register(LakeDataSource)
        frame = spark.readStream.format("ortoo").options(
            address=address,
            subscribe=source,
            startingOffsets="earliest",
            maxOffsetsPerTrigger=messages,
            columns=COLUMNS,
        )
        lake = Lake(str(folder / "lake"), "delta")
        rows = frame.load()
        from pyspark.sql.pandas.types import to_arrow_schema

        lake.create(lake_schema(to_arrow_schema(rows.schema, timezone="UTC")))
        archive = rows.writeStream.format("ortoo-lake").option("path", lake.path).option("lakeFormat", "delta")
        writers = {"lake": archive}
        shuffled = rows.select("body", "born_at").repartition(2, "body").sortWithinPartitions("body")
        for name, semantics in COPIES.items():
            copy = shuffled.writeStream.format("ortoo-pieces")
            copy = copy.options(address=address, topic=f"{source}-{name}", deliverySemantics=semantics)
            writers[name] = copy.option("sinkId", name) if semantics == "exactly-once" else copy
        supervise({name: at.option("checkpointLocation", str(folder / f"checkpoint-{name}"))
                   for name, at in writers.items()})  # fmt: skip


def supervise(writers: dict[str, Any]) -> None:
    """Run queries to their ends, one after another first, then all at once; killed ones are started again.

    Errors: the error of a query that failed too often.
    """
    failures, started = 0, False
    queries: dict[str, Any] = {}
    waiting = sorted(writers, key=lambda _: Randomness().id64())
    while waiting or queries:
        if waiting and all(query.lastProgress is not None for query in queries.values()):
            name = waiting.pop(0)
            queries[name] = writers[name].trigger(availableNow=True).start()
            if not started:
                started = True
                say("started")
        for name, query in list(queries.items()):
            try:
                if query.awaitTermination(LOOK_S):
                    del queries[name]
            except StreamingQueryException as error:
                failures += 1
                if failures > FAILURES_MAX:
                    raise
                say(f"{name} ended: {error}", to=sys.stderr)
                del queries[name]
                waiting.append(name)


def say(line: str, to: Any = sys.stdout) -> None:
    """Print a line for the parent process, or for the log."""
    to.write(f"{line}\n")
    to.flush()


if __name__ == "__main__":
    address, source, folder, messages = sys.argv[1:]
    main(address, source, Path(folder), messages)
