"""The driver that the long test kills: a topic into a lake, and the same topic into another topic, exactly once.

python -m tests.spark.long_queries ADDRESS SOURCE TARGET FOLDER MESSAGES_A_BATCH
"""

import sys
from pathlib import Path
from typing import Any

from ortoo.spark import register
from ortoo.spark.lake.lake_sink import LakeDataSource, lake_schema
from ortoo.spark.lake.table import Lake
from ortoo.spark.pipeline.running.session import session
from ortoo.spark.pipeline.running.settings import SparkSettings

COLUMNS = "topic,enode,queue_id,offset,body,stored_at,born_at"


def main(address: str, source: str, target: str, folder: Path, messages: str) -> None:
    """Run both queries until everything that is there now is through."""
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
        copy = (
            rows.select("body", "born_at")
            .writeStream.format("ortoo")
            .options(address=address, topic=target, deliverySemantics="exactly-once", sinkId="copy")
        )
        queries = [_start(archive, folder / "checkpoint-lake"), _start(copy, folder / "checkpoint-copy")]
        sys.stdout.write("started\n")
        sys.stdout.flush()
        for query in queries:
            query.awaitTermination()


def _start(writer: Any, checkpoint: Path) -> Any:
    return writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()


if __name__ == "__main__":
    address, source, target, folder, messages = sys.argv[1:]
    main(address, source, target, Path(folder), messages)
