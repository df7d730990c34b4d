"""Spark Connect: the client speaks with a server, and the source runs beside the server."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed; run `make spark-setup`")
pytest.importorskip("grpc_status", reason="grpcio-status is not installed; run `make spark-setup`")

from ortoo.client import Message
from tests.repo.tree import ROOT
from tests.spark.sending import send, stored
from tests.spark.session import Broker, java_found

RUN_S = 800
MESSAGES = 1_000

pytestmark = [pytest.mark.long, pytest.mark.timeout(RUN_S + 100)]


def test_a_client_of_spark_connect_reads_filters_and_writes(broker: Broker, topic: str, folder: Path) -> None:
    """The page on shipping: a remote session registers the source, reads and writes batches and streams."""
    if not java_found():
        pytest.skip("NO JAVA, so Spark was NOT tested; run `make spark-setup`, which finds or installs Java 17")
    broker.client.admin.create_topic(f"{topic}-copy", queue_count=2)
    send(broker, topic, [Message(b'{"n": %d}' % n, "rare" if n % 100 == 0 else None) for n in range(MESSAGES)])
    done = subprocess.run(
        [sys.executable, "-m", "tests.spark.connect_job", broker.address, topic, f"{topic}-copy", str(folder)],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=RUN_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    seen = json.loads(done.stdout.splitlines()[-1])
    assert seen.pop("session").startswith("pyspark.sql.connect.")
    assert seen == {"rows": MESSAGES, "sum": sum(range(MESSAGES)), "tagged": MESSAGES // 100}
    assert stored(broker, f"{topic}-copy") == 2 * MESSAGES
