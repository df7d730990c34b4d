"""A separate Spark session with a broken package beside it, and with tasks that Spark repeats."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed; run `make spark-setup`")

from ortoo.client import Message
from tests.repo.tree import ROOT
from tests.spark.sending import send, stored
from tests.spark.session import Broker, java_found

MESSAGES = 40_000
RUN_S = 500
"""Limit on a busy machine; on an idle one a run takes forty seconds."""

pytestmark = [pytest.mark.long, pytest.mark.timeout(2 * RUN_S)]


@dataclass(frozen=True)
class Run:
    """The results of one driver, and its target topic."""

    seen: dict[str, Any]
    target: str


@pytest.fixture(scope="module")
def run(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """One run of the other driver, with a package beside it that raises when Spark looks for sources."""
    if not java_found():
        pytest.skip("NO JAVA, so Spark was NOT tested; run `make spark-setup`, which finds or installs Java 17")
    folder = tmp_path_factory.mktemp("other-driver")
    neighbours = folder / "neighbours"
    neighbours.mkdir()
    (neighbours / "pyspark_broken.py").write_text("raise RuntimeError('broken on purpose')\n")
    source, target = "other-driver", "other-driver-copy"
    for topic in (source, target):
        broker.client.admin.create_topic(topic, queue_count=2)
    send(broker, source, [Message(b"%d" % number + b" " * 200) for number in range(MESSAGES)])
    done = subprocess.run(
        [sys.executable, "-m", "tests.spark.other_driver", broker.address, source, target, str(folder)],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(neighbours), str(ROOT)])},
        capture_output=True,
        text=True,
        timeout=RUN_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return Run(json.loads(done.stdout.splitlines()[-1]), target)


def test_a_broken_neighbour_leaves_register_working(run: Run) -> None:
    """Check 1: a package named pyspark_* that cannot be imported breaks discovery, but not `register`."""
    assert "DATA_SOURCE_NOT_FOUND" in run.seen["unregistered"]
    assert run.seen["registered"] == MESSAGES


def test_a_read_goes_on_when_spark_replaces_killed_workers(run: Run) -> None:
    """Check 7: with `local[2,3]` each task's first worker is killed during it, and each row is there once."""
    assert len([name for name in run.seen["failures"] if name.startswith("read")]) >= 4
    assert run.seen["read"] == [MESSAGES, MESSAGES]


def test_a_task_that_spark_repeats_stores_its_rows_once(broker: Broker, run: Run) -> None:
    """Check 7: with `local[2,3]` tasks of an exactly-once sink are killed, and Spark repeats them."""
    assert len([name for name in run.seen["failures"] if name.startswith("copy")]) >= 2
    assert stored(broker, run.target) == MESSAGES
