"""The example of a report by Spark runs as it is written, in a process of its own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed; run `make spark-setup`")

from ortoo.client import Message
from tests.repo.tree import ROOT
from tests.spark.session import Broker, java_found


def test_the_report_counts_each_sale(broker: Broker, topic: str, folder: Path) -> None:
    """spark_report.py sums the messages of a topic by shop, and writes the sums as CSV."""
    if not java_found():
        pytest.skip("NO JAVA, so Spark was NOT tested; run `make spark-setup`, which finds or installs Java 17")
    with broker.client.producer(topic) as producer:
        producer.send_many(
            Message(b'{"shop": "shop-%d", "cents": %d}' % (number % 3, number * 70)) for number in range(1, 201)
        )
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples/spark_report.py"), topic, str(folder / "report")],
        env=os.environ | {"ORTOO_ADDRESS": broker.address, "SPARK_LOCAL_IP": "127.0.0.1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (report,) = (folder / "report").glob("*.csv")
    header, *rows = [line.split(",") for line in report.read_text().splitlines()]
    assert header == ["shop", "hour", "sales", "revenue"]
    assert sum(int(row[2]) for row in rows) == 200
    assert sum(float(row[3]) for row in rows) == sum(range(1, 201)) * 0.7
