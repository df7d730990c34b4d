"""The driver that tests kill while servers are killed too: archives topics, replays the lake, and copies a topic.

python -m tests.spark.killed_jobs ADDRESS SOURCE FOLDER

It repeats these jobs. The first pass that begins when FOLDER has a file `finish` is the last one.
"""

import sys
from pathlib import Path
from typing import Any, TextIO

from ortoo.common.process.randomness import Randomness
from ortoo.spark import register
from ortoo.spark.pipeline.jobs.archive import archive
from ortoo.spark.pipeline.jobs.replay import replay
from ortoo.spark.pipeline.runtime.session import session
from ortoo.spark.pipeline.runtime.settings import (
    ArchiveSettings,
    LakeSettings,
    PipelineSettings,
    ReplaySettings,
    SparkSettings,
)

BATCH_MESSAGES = 1_000
BACK, COPY, PASSING = "back", "copy", "passing"
"""Suffixes of the topics of the replay and of the copy, and of topics that are archived too until they are deleted."""


def settings_of(address: str, source: str, folder: Path) -> PipelineSettings:
    """The settings of both jobs of the pipeline."""
    return PipelineSettings(
        address=address,
        lake=LakeSettings(str(folder / "lake"), "delta"),
        archive=ArchiveSettings(
            pattern=f"{source}(-{PASSING}-[0-9]+)?", max_offsets_per_trigger=BATCH_MESSAGES, fail_on_data_loss=False
        ),
        replay=ReplaySettings(topic=f"{source}-{BACK}", create_queue_count=2, tasks=2),
    )


def main(address: str, source: str, folder: Path) -> None:
    """Run all jobs, pass after pass."""
    settings = settings_of(address, source, folder)
    conf = (
        "spark.driver.memory=768m",
        "spark.driver.extraJavaOptions=-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
        "spark.driver.host=127.0.0.1",
        "spark.sql.shuffle.partitions=2",
        f"spark.sql.execution.arrow.maxRecordsPerBatch={1 + Randomness().below(600)}",
        "spark.sql.streaming.unsupportedOperationCheck=false",
    )
    with session(SparkSettings("local[2,8]", conf)) as spark:
        register(spark)
        tell("started", to=sys.stdout)
        is_last = False
        while not is_last:
            is_last = (folder / "finish").exists()
            copying = copy(spark, address, source, folder)
            outcome = archive(spark, settings, tell, once=True)
            assert outcome is not None
            assert not any(check.duplicates for check in outcome.checks), list(outcome.lines())
            assert not any(check.missing for check in outcome.checks if check.topic == source), list(outcome.lines())
            replay(spark, settings, tell)
            copying.awaitTermination()


def copy(spark: Any, address: str, source: str, folder: Path) -> Any:
    """Start the query that copies what is stored now, shuffled and exactly once."""
    frame = spark.readStream.format("ortoo").options(
        address=address, subscribe=source, startingOffsets="earliest", maxOffsetsPerTrigger=BATCH_MESSAGES,
        columns="body,born_at",
    )  # fmt: skip
    shuffled = frame.load().repartition(2, "body").sortWithinPartitions("body")
    sink = shuffled.writeStream.format("ortoo").options(
        address=address, topic=f"{source}-{COPY}", deliverySemantics="exactly-once", sinkId=COPY
    )
    return sink.option("checkpointLocation", str(folder / "checkpoint-copy")).trigger(availableNow=True).start()


def tell(line: str, to: TextIO = sys.stderr) -> None:
    """Write a line of a job into the log, or for the parent process."""
    to.write(f"{line}\n")
    to.flush()


if __name__ == "__main__":
    address, source, folder = sys.argv[1:]
    main(address, source, Path(folder))
