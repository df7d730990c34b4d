"""One Spark session and one cluster of real processes for all tests here."""

import contextlib
import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ortoo.client import Queue, blocking
from ortoo.client.blocking.loop_thread import LoopThread
from ortoo.verification.servers.processes import ProcessCluster, process_cluster

SHORT_LIVED = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
"""Options of a JVM that lives for seconds and should not spend time on optimisation."""


def java_found() -> bool:
    """Whether Spark finds a Java."""
    home = os.environ.get("JAVA_HOME")
    return shutil.which("java") is not None or bool(home and (Path(home) / "bin" / "java").exists())


@contextlib.contextmanager
def spark_session(folder: Path, *, master: str = "local[2]", memory: str = "768m") -> Iterator[Any]:
    """A session on this machine that uses no network and leaves no process running."""
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    from pyspark.sql import SparkSession

    settings = {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": memory,
        "spark.driver.extraJavaOptions": SHORT_LIVED,
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.sql.streaming.checkpointFileManagerClass": (
            "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
        ),
        "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    builder = SparkSession.builder.master(master)
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    try:
        yield spark
    finally:
        spark.stop()


@dataclass(frozen=True)
class Broker:
    """The cluster, its processes, and a client of it."""

    cluster: ProcessCluster
    client: blocking.BlockingClient
    thread: LoopThread

    @property
    def address(self) -> str:
        """Where clients connect."""
        return self.cluster.address

    def queues(self, topic: str) -> dict[Queue, tuple[int, int]]:
        """First and next offset of each queue."""
        described = self.client.admin.describe_topic(topic)
        return {info.queue: (info.begin_offset, info.end_offset) for info in described.queues}

    def run(self, work: Any) -> Any:
        """Run a coroutine about the processes."""
        return self.thread.run(work)


@contextlib.contextmanager
def broker_of(
    folder: Path, *, enodes: int = 2, environ: Mapping[str, Mapping[str, object]] | None = None
) -> Iterator[Broker]:
    """A name server, enodes and a snode, as processes; `environ` gives each role's settings."""
    thread = LoopThread()
    try:
        with (
            thread.enter_context(process_cluster(folder, enodes=enodes, environ=environ)) as cluster,
            blocking.connect(cluster.address) as client,
        ):
            yield Broker(cluster, client, thread)
    finally:
        thread.close()
