"""Requirements of the Spark package: its wheel, memory, and no network."""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed; run `make spark-setup`")

from ortoo.client import Message
from tests.repo.tree import ROOT
from tests.spark.sending import send
from tests.spark.session import Broker, java_found

CHECKS = 17
WORKER_MIB_MAX = 400

READ_ALL = r"""
import re, sys
from pyspark.sql.types import BinaryType, StructField, StructType
from ortoo.spark.core import read_options
from ortoo.spark.reading.batch_read import BatchReader
options = {"address": sys.argv[1], "subscribe": sys.argv[2]}
schema = StructType([StructField("body", BinaryType())])
reader = BatchReader(read_options.parse(options, streaming=False), schema)
size = sum(batch.nbytes for task in reader.partitions() for batch in reader.read(task))
print(size, int(re.search(r"VmHWM:\s+(\d+)", open("/proc/self/status").read())[1]) // 1024)
"""


def test_the_wheel_carries_what_spark_looks_for(folder: Path) -> None:
    """A wheel built from the sources has the module that Spark discovers, the source and the command."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT / "libs/spark", check=True, capture_output=True, timeout=300)
    (wheel,) = folder.glob("ortoo_spark-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        entry = next(name for name in names if name.endswith("entry_points.txt"))
        assert "ortoo-pipeline" in archive.read(entry).decode()
    assert {
        "pyspark_ortoo/__init__.py",
        "ortoo/spark/format/source.py",
        "ortoo/spark/pipeline/runtime/log4j2.properties",
    } <= names
    assert "ortoo/__init__.py" not in names


MEMBERS = ("libs/wire", "libs/common", "libs/client", "libs/spark")
COUNT = """
import os, sys
import ortoo.spark
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
count = spark.read.format("ortoo").option("subscribe", sys.argv[1]).load().count()
print("rows", count, "of", ortoo.spark.__file__)
spark.stop()
"""


@pytest.mark.long
def test_installing_the_wheels_is_all(broker: Broker, topic: str, folder: Path) -> None:
    """Check 1: in a new environment with Ortoo's wheels and their dependencies, the format is found."""
    if not java_found():
        pytest.skip("NO JAVA, so Spark was NOT tested; run `make spark-setup`, which finds or installs Java 17")
    send(broker, topic, [Message(b"one"), Message(b"two")])
    for member in MEMBERS:
        command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
        subprocess.run(command, cwd=ROOT / member, check=True, capture_output=True, timeout=300)
    python = folder / "venv/bin/python"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder / "venv")], check=True, timeout=300)
    wheels = [str(wheel) for wheel in folder.glob("*.whl")]
    install = [sys.executable, "-m", "pip", "--python", str(python), "install", "--no-index", "--no-deps", *wheels]
    subprocess.run(install, check=True, capture_output=True, timeout=300)
    # Dependencies that `pip` would download. Sources that are installed in place here are not among them.
    (site,) = (folder / "venv").glob("lib/python3*/site-packages")
    (site / "others.pth").write_text(sysconfig.get_path("purelib") + "\n")
    environ = os.environ | {
        "PYSPARK_PYTHON": str(python),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "ORTOO_ADDRESS": broker.address,
    }
    done = subprocess.run(
        [str(python), "-c", COUNT, topic],
        cwd=folder,
        env=environ,
        capture_output=True,
        text=True,
        timeout=380,
        check=False,
    )
    assert f"rows 2 of {site}" in done.stdout, done.stderr[-2000:]


def test_large_bodies_fit_into_a_small_worker(broker: Broker, topic: str) -> None:
    """160 MiB in bodies of 4 MiB are read by a process that stays under 400 MiB."""
    send(broker, topic, [Message(bytes([number]) * (4 << 20)) for number in range(40)])
    command = [sys.executable, "-c", READ_ALL, broker.address, topic]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    size, peak_mib = map(int, done.stdout.split())
    assert size >= 160 << 20
    assert peak_mib < WORKER_MIB_MAX


@pytest.mark.long
@pytest.mark.timeout(900)
def test_nothing_needs_a_network(folder: Path) -> None:
    """Check 17: a read, a stream and a sink work with only the loopback interface."""
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        pytest.skip("NO UNSHARE, so Spark without a network was NOT tested; run as root with util-linux")
    tests = "tests/spark/test_batch_read.py tests/spark/test_sink.py -k 'projection or job_that_is_run_twice'"
    inside = f"ip link set lo up && {sys.executable} -m pytest -q -p no:cacheprovider {tests}"
    done = subprocess.run(
        ["unshare", "-n", "bash", "-c", inside], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-3000:]


def test_every_check_has_a_test_or_a_script() -> None:
    """The page of promises lists each check, and each test or script in it exists."""
    page = (ROOT / "docs/spark/promises.md").read_text()
    rows = re.findall(r"^\| (\d+) \|.*\| (.*) \|$", page, re.M)
    assert [int(number) for number, _ in rows] == list(range(1, CHECKS + 1))
    sources = "".join(file.read_text() for file in sorted((ROOT / "tests").rglob("test_*.py")))
    for number, proofs in rows:
        named = re.findall(r"`([^`]+)`", proofs)
        assert named, number
        for name in named:
            assert f"def {name}(" in sources or (ROOT / name).exists(), (number, name)
