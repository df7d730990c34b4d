"""The driver that tests kill while servers are killed too: archives topics, replays the lake, and copies a topic.

python -m tests.spark.killed_jobs ADDRESS SOURCE FOLDER

It repeats each of these jobs, all at once, until FOLDER has a file `finish`. Then it runs each of them once more.
A job that a kill has ended is repeated too. While a job runs, FOLDER has a file `running-JOB`.
"""

import sys
import threading
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, TextIO

from ortoo.common.process.randomness import Randomness
from ortoo.spark import register
from ortoo.spark.pipeline.jobs.archive import archive
from ortoo.spark.pipeline.jobs.compact import compact
from ortoo.spark.pipeline.jobs.replay import replay
from ortoo.spark.pipeline.runtime.session import session
from ortoo.spark.pipeline.runtime.settings import (
    ArchiveSettings,
    CompactSettings,
    LakeSettings,
    PipelineSettings,
    ReplaySettings,
    SparkSettings,
)
from tests.spark.killed_driver import WRONG

BATCH_MESSAGES_MIN, BATCH_MESSAGES_MORE = 1_000, 10_000
"""Each query takes batches of another size, from the first number on, so that it catches up with the growth."""
BACK, COPY, PASSING = "back", "copy", "passing"
"""Suffixes of the topics of the replay and of the copy, and of topics that are archived too until they are deleted."""
JOBS = ARCHIVE, COPYING, REPLAY = "archive", "copy", "replay"
"""The jobs, in the order of their last runs: the replay writes what the last archive has added."""
ENDED_EARLY = "ended early"
FAILURES_MAX = 5
"""Number of failures of a job without a success, after which the driver ends."""
PAUSE_S = 0.2


def batch_messages() -> int:
    """A random size of batches."""
    return BATCH_MESSAGES_MIN + Randomness().below(BATCH_MESSAGES_MORE)


def settings_of(address: str, source: str, folder: Path) -> PipelineSettings:
    """The settings of the jobs of the pipeline."""
    return PipelineSettings(
        address=address,
        lake=LakeSettings(str(folder / "lake"), "delta"),
        archive=ArchiveSettings(
            pattern=f"{source}(-{PASSING}-[0-9]+)?", max_offsets_per_trigger=batch_messages(), fail_on_data_loss=False
        ),
        compact=CompactSettings(open_days=0),
        replay=ReplaySettings(topic=f"{source}-{BACK}", create_queue_count=2, tasks=2),
    )


class Repeated:
    """The jobs, each on its thread."""

    def __init__(self, spark: Any, jobs: dict[str, Callable[[], object]], folder: Path) -> None:
        self._spark, self._jobs, self._folder = spark, jobs, folder
        self._has_failed = threading.Event()

    def run(self) -> None:
        """Repeat all jobs until `finish` exists, then run each once. Errors: AssertionError, and those of a job."""
        with ThreadPoolExecutor(len(self._jobs)) as threads:
            repeated = [threads.submit(self._repeat, name) for name in self._jobs]
        for one in repeated:
            one.result()
        for job in self._jobs.values():
            job()

    def _repeat(self, name: str) -> None:
        self._spark.createDataFrame([(0,)], "n int")  # makes the session the active one of this thread
        failures = 0
        while not (self._folder / "finish").exists() and not self._has_failed.wait(PAUSE_S):
            try:
                self._run(name)
                failures = 0
            except Exception as error:
                failures += 1
                first = next(iter(str(error).splitlines()), "")
                tell(f"{name} {ENDED_EARLY}: {type(error).__name__}: {first}")
                tell(traceback.format_exc())
                if isinstance(error, AssertionError) or failures >= FAILURES_MAX:
                    self._has_failed.set()
                    raise

    def _run(self, name: str) -> None:
        mark = self._folder / f"running-{name}"
        mark.touch()
        try:
            self._jobs[name]()
        finally:
            mark.unlink(missing_ok=True)


def main(address: str, source: str, folder: Path) -> None:
    """Make the session, wait for a line, and run the jobs."""
    settings = settings_of(address, source, folder)
    conf = (
        "spark.driver.memory=768m",
        "spark.driver.extraJavaOptions=-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
        "spark.driver.host=127.0.0.1",
        "spark.sql.shuffle.partitions=2",
        f"spark.sql.execution.arrow.maxRecordsPerBatch={1 + Randomness().below(600)}",
        "spark.sql.streaming.unsupportedOperationCheck=false",
    )
    with session(SparkSettings("local[3,8]", conf)) as spark:
        register(spark)
        if not sys.stdin.readline():
            return  # the test has ended
        tell("started", to=sys.stdout)
        lake = settings.open_lake()
        if lake.exists:
            compact(settings, tell)  # otherwise each job would open more files than the one before
        jobs: dict[str, Callable[[], object]] = {
            ARCHIVE: partial(archive_and_check, spark, settings, source),
            COPYING: lambda: copy(spark, address, source, folder).awaitTermination(),
            REPLAY: lambda: replay(spark, settings, tell) if lake.exists and lake.file_paths() else None,
        }
        Repeated(spark, jobs, folder).run()


def archive_and_check(spark: Any, settings: PipelineSettings, source: str) -> None:
    """Archive what is stored now. Errors: AssertionError if the lake does not have each message once."""
    outcome = archive(spark, settings, tell, once=True)
    if outcome is None:
        return  # no message has arrived yet
    assert not any(check.duplicates for check in outcome.checks), list(outcome.lines())
    assert not any(check.missing for check in outcome.checks if check.topic == source), list(outcome.lines())


def copy(spark: Any, address: str, source: str, folder: Path) -> Any:
    """Start the query that copies what is stored now, shuffled and exactly once."""
    frame = spark.readStream.format("ortoo").options(
        address=address, subscribe=source, startingOffsets="earliest", maxOffsetsPerTrigger=batch_messages(),
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
    try:
        main(address, source, Path(folder))
    except AssertionError:
        tell(traceback.format_exc())
        sys.exit(WRONG)
