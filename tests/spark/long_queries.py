"""The driver that the long test kills: a topic into a lake, and into two others, exactly once and, to compare, not.

python -m tests.spark.long_queries ADDRESS SOURCE FOLDER MESSAGES_A_BATCH

Each copy shuffles its rows and gets them in pieces that are cut elsewhere by every attempt of a task: what is the same
in all attempts is the order of a partition's rows and nothing else, as the documents ask for.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from ortoo.common.process.randomness import Randomness
from ortoo.spark import register
from ortoo.spark.lake.lake_sink import LakeDataSource, lake_schema
from ortoo.spark.lake.table import Lake
from ortoo.spark.pipeline.running.session import session
from ortoo.spark.pipeline.running.settings import SparkSettings

COLUMNS = "topic,enode,queue_id,offset,body,stored_at,born_at"
COPIES = {"copy": "exactly-once", "control": "at-least-once"}
"""What stands behind the source's name in that of a copy, and how often a row is stored there."""
PIECE_ROWS_MAX = 300


def in_pieces(batches: Iterator[Any]) -> Iterator[Any]:
    """The rows of a partition by their bodies, in pieces of sizes that no other attempt has."""
    rows = [batch for batch in batches if len(batch)]
    if not rows:
        return
    ordered = pa.Table.from_batches(rows).sort_by("body").combine_chunks()
    randomness, at = Randomness(), 0
    while at < len(ordered):
        size = 1 + randomness.below(PIECE_ROWS_MAX)
        yield from ordered.slice(at, size).to_batches()
        at += size


def main(address: str, source: str, folder: Path, messages: str) -> None:
    """Run all queries until everything that is there now is through."""
    conf = ("spark.driver.memory=768m", "spark.driver.host=127.0.0.1", "spark.sql.shuffle.partitions=2")
    with session(SparkSettings("local[2]", conf)) as spark:
        register(spark)
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
        queries = [_start(archive, folder / "checkpoint-lake")]
        shuffled = rows.select("body", "born_at").repartition(2, "body")
        for name, semantics in COPIES.items():
            copy = shuffled.mapInArrow(in_pieces, shuffled.schema).writeStream.format("ortoo")
            copy = copy.options(address=address, topic=f"{source}-{name}", deliverySemantics=semantics)
            if semantics == "exactly-once":
                copy = copy.option("sinkId", name)
            queries.append(_start(copy, folder / f"checkpoint-{name}"))
        sys.stdout.write("started\n")
        sys.stdout.flush()
        for query in queries:
            query.awaitTermination()


def _start(writer: Any, checkpoint: Path) -> Any:
    return writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()


if __name__ == "__main__":
    address, source, folder, messages = sys.argv[1:]
    main(address, source, Path(folder), messages)
