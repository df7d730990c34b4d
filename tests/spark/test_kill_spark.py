"""Drivers and workers are killed at random during sends; the lake and the exactly-once copy stay exact.

`ORTOO_SPARK_MESSAGES` and `ORTOO_SPARK_KILLS` set the numbers. `make spark-kills` uses 500,000 and 50, `make
spark-long` 10,000,000 and 20.
"""

import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from ortoo.client import Message
from ortoo.common.process.clock import SystemClock
from ortoo.common.process.randomness import Randomness
from ortoo.spark.lake.table import Lake
from tests.spark.killed_driver import Driver
from tests.spark.long_queries import COPIES
from tests.spark.session import Broker

MESSAGES = int(os.environ.get("ORTOO_SPARK_MESSAGES", "200000"))
KILLS = int(os.environ.get("ORTOO_SPARK_KILLS", "4"))
BATCHES = max(2 * KILLS, 60)
"""Number of batches such that the queries outlast the kills; between two kills few batches complete."""
KILL_AFTER_BATCHES = 4
KILL_AFTER_S = 1.0
"""A driver is killed after a random number of batches of all queries up to this, within a random time."""
KILL_WITHIN_S = 60.0
"""Or after this time, because a query that starts or has ended commits no batch."""
LOOK_S = 0.05
WORKERS_A_DRIVER = 7
"""Number of workers killed before each driver; Spark repeats their tasks, the driver their queries."""
FAILURES_MAX = 10
RUN_S = 3_600


class Progress:
    """The progress of the queries by their checkpoints, printed as lines."""

    def __init__(self, folder: Path) -> None:
        """`folder` has the checkpoints of the queries."""
        self._clock = SystemClock()
        self._began_s = self._clock.monotonic_s()
        self._folder = folder

    def tell(self, what: str) -> None:
        """Print one line: the time since the start, the event, and the progress of the queries."""
        sys.stdout.write(f"{self.now_s:6.0f} s  {what}; of {BATCHES} batches: {self._batches()}\n")
        sys.stdout.flush()

    @property
    def now_s(self) -> float:
        """The time since the start."""
        return self._clock.monotonic_s() - self._began_s

    @property
    def batches(self) -> int:
        """The committed batches of all queries together."""
        return sum(self._batches().values())

    def _batches(self) -> dict[str, int]:
        names = ("lake", *COPIES)
        found = {name: (self._folder / f"checkpoint-{name}" / "commits").glob("[0-9]*") for name in names}
        return {name: max((int(file.name) for file in files), default=-1) + 1 for name, files in found.items()}


def hit(driver: Driver, progress: Progress, randomness: Randomness, *, at_worker: bool) -> str:
    """Kill a driver or one of its workers at a random time; returns its name, or nothing if it had ended."""
    until, until_s = progress.batches + 1 + randomness.below(KILL_AFTER_BATCHES), progress.now_s + KILL_WITHIN_S
    while progress.batches < until and progress.now_s < until_s:
        if driver.ends_within(LOOK_S) is not None:
            return ""
    if driver.ends_within(randomness.uniform(0.0, KILL_AFTER_S)) is not None:
        return ""
    workers = driver.worker_ids() if at_worker else []
    if not workers:
        driver.kill()
        return "the driver"
    os.kill(workers[randomness.below(len(workers))], signal.SIGKILL)
    driver.hurt = True
    return "a worker"


@pytest.mark.long
@pytest.mark.timeout(RUN_S)
def test_kills_of_drivers_and_workers_lose_and_double_nothing(
    spark: Any, broker: Broker, topic: str, folder: Path
) -> None:
    """Check 6 and 7: after every kill the queries continue from the checkpoint. Each row is there once."""
    progress = Progress(folder)
    for name in COPIES:
        broker.client.admin.create_topic(f"{topic}-{name}", queue_count=4)
    with broker.client.producer(topic) as producer:
        for first in range(0, MESSAGES, 100_000):
            producer.send_many(Message(b"%d" % n) for n in range(first, min(first + 100_000, MESSAGES)))
    progress.tell(f"{MESSAGES:,} messages are stored")
    randomness = Randomness(7)
    kills = failures = 0
    arguments = (broker.address, topic, str(folder), str(max(MESSAGES // BATCHES, 1)))
    driver: Driver | None = None

    def start() -> Driver:
        return Driver("tests.spark.long_queries", arguments, folder)

    while kills < KILLS:
        driver = driver or start()
        killed = hit(driver, progress, randomness, at_worker=(kills + 1) % (WORKERS_A_DRIVER + 1) > 0)
        if killed:
            kills += 1
            progress.tell(f"kill {kills} of {KILLS}: {killed}")
        elif not driver.hurt:
            failures += 1  # a busy machine may refuse to start a worker in time
            progress.tell(f"a driver failed on its own, {failures} of at most {FAILURES_MAX}")
            assert failures <= FAILURES_MAX, driver.said()
        if driver.process.returncode is not None:
            assert driver.process.returncode != 0, f"all queries ended after {kills} kills of {KILLS}: send more"
            driver = None
    driver = driver or start()
    while driver.ends_within(RUN_S) != 0:
        failures += not driver.hurt
        assert failures <= FAILURES_MAX, driver.said()
        driver = start()
    progress.tell("the queries have ended")
    assert "wrote other rows" not in (folder / "driver.log").read_text()
    source = spark.read.format("ortoo").options(address=broker.address, columns="enode,queue_id,offset,body")
    sent, copied, control = (source.option("subscribe", f"{topic}{name}").load() for name in ("", "-copy", "-control"))
    lake = Lake(str(folder / "lake"), "delta").read(spark)
    counts = [tuple(of_bodies(frame).first()) for frame in (lake, copied, control)]
    progress.tell(f"rows, different ones, first and last of the lake, the copy and the control: {counts}")
    assert counts[0] == counts[1] == (MESSAGES, MESSAGES, 0, MESSAGES - 1)
    assert counts[2][0] >= MESSAGES  # test_sink.py shows that such a sink certainly duplicates
    assert counts[2][1:] == (MESSAGES, 0, MESSAGES - 1)
    places = "bit_xor(xxhash64(enode, queue_id, `offset`, body)) h"
    assert lake.selectExpr(places).first() == sent.selectExpr(places).first()
    progress.tell(
        f"{kills} kills: the lake's rows are the topic's, the copy has each once, the control some twice or none"
    )


def of_bodies(frame: Any) -> Any:
    """Numbers of rows and distinct rows, minimum and maximum; sufficient for numbers without gaps."""
    numbers = frame.selectExpr("cast(cast(body as string) as bigint) n")
    return numbers.selectExpr("count(*)", "count(distinct n)", "min(n)", "max(n)")
