"""Drivers and workers killed at random while millions of messages flow: the lake and the other topic stay exact.

`ORTOO_SPARK_MESSAGES` and `ORTOO_SPARK_KILLS` choose how much; `make spark-long` takes 10,000,000 and 20.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ortoo.client import Message
from ortoo.common.randomness import Randomness
from ortoo.spark.lake.table import Lake
from tests.repo.tree import ROOT
from tests.spark.session import Broker

MESSAGES = int(os.environ.get("ORTOO_SPARK_MESSAGES", "200000"))
KILLS = int(os.environ.get("ORTOO_SPARK_KILLS", "4"))
BATCHES = 60
START_S = 300
RUN_S = 3_600


class Driver:
    """One run of the queries, in a process that can be killed."""

    def __init__(self, broker: Broker, source: str, target: str, folder: Path) -> None:
        """Start it and wait until its queries run."""
        arguments = [broker.address, source, target, str(folder), str(max(MESSAGES // BATCHES, 1))]
        self.log = (folder / "driver.log").open("ab")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.spark.long_queries", *arguments],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=self.log,
            start_new_session=True,
            text=True,
            env=os.environ | {"SPARK_LOCAL_IP": "127.0.0.1"},
        )
        assert self.process.stdout is not None
        self.started = self.process.stdout.readline().strip() == "started"

    def ends_within(self, seconds: float) -> int | None:
        """Its exit code, or None if it still runs after so long."""
        try:
            code = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None
        self._close()
        return code

    def kill(self) -> None:
        """End the driver and its JVM without warning; its workers notice and end by themselves."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self._close()

    def _close(self) -> None:
        assert self.process.stdout is not None
        self.process.stdout.close()
        self.log.close()

    def worker_ids(self) -> list[int]:
        """The Python workers of its JVM."""
        return [pid for pid in _descendants(self.process.pid) if b"pyspark" in _command(pid)]


def _descendants(process_id: int) -> Iterator[int]:
    for task in Path(f"/proc/{process_id}/task").glob("*/children"):
        try:
            children = [int(word) for word in task.read_text().split()]
        except OSError:
            continue
        for child in children:
            yield child
            yield from _descendants(child)


def _command(process_id: int) -> bytes:
    try:
        return Path(f"/proc/{process_id}/cmdline").read_bytes()
    except OSError:
        return b""


@pytest.mark.long
@pytest.mark.timeout(RUN_S)
def test_kills_of_drivers_and_workers_lose_and_double_nothing(
    spark: Any, broker: Broker, topic: str, folder: Path
) -> None:
    """Check 6 and 7: after every kill the queries go on where they were; each row is there once."""
    target = f"{topic}-copy"
    broker.client.admin.create_topic(target, queue_count=4)
    with broker.client.producer(topic) as producer:
        for first in range(0, MESSAGES, 100_000):
            producer.send_many(Message(b"%d" % n) for n in range(first, min(first + 100_000, MESSAGES)))
    randomness = Randomness(7)
    kills = 0
    while kills < KILLS:
        driver = Driver(broker, topic, target, folder)
        if driver.ends_within(randomness.uniform(0.5, 12.0)) is None:
            workers = driver.worker_ids()
            if kills % 2 and workers:
                os.kill(workers[randomness.below(len(workers))], signal.SIGKILL)
                if driver.ends_within(START_S) is None:
                    driver.kill()
            else:
                driver.kill()
            kills += 1
        elif driver.process.returncode == 0:
            break  # everything is through
    last: int | None = None
    for _ in range(3):  # a busy machine may refuse to start a worker in time
        driver = Driver(broker, topic, target, folder)
        last = driver.ends_within(RUN_S)
        if last == 0:
            break
    assert last == 0, (folder / "driver.log").read_text()[-3000:]
    source = spark.read.format("ortoo").options(address=broker.address, columns="body")
    lake = Lake(str(folder / "lake"), "delta").read(spark).select("body")
    for name, frame in {"lake": lake, "topic": source.option("subscribe", target).load()}.items():
        counted = frame.selectExpr(
            "count(*) n", "count(distinct body) d", "sum(cast(cast(body as string) as bigint)) s"
        )
        row = counted.first()
        assert (row.n, row.d, row.s) == (MESSAGES, MESSAGES, MESSAGES * (MESSAGES - 1) // 2), (name, kills)
    sys.stdout.write(f"{MESSAGES:,} messages, {kills} kills: lake and topic are exact\n")
