"""Shipping the package to executors in an archive that Spark unpacks for workers without an installation."""

import os
import subprocess
import sys
import sysconfig
import tarfile
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed; run `make spark-setup`")

from tests.repo.tree import ROOT
from tests.spark.sending import numbered, send
from tests.spark.session import Broker, java_found

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

MEMBERS = ("wire", "common", "client", "spark")
PYTHON = """#!/bin/sh
here=$(dirname "$0")/..
PYTHONPATH="$here/packages:{others}:$PYTHONPATH" exec {python} "$@"
"""
"""An interpreter that finds only Ortoo's packages beside it; Spark's and Arrow's are those of this environment."""


def environment(folder: Path) -> Path:
    """An environment to ship: an interpreter and Ortoo's packages."""
    made = folder / "ortoo-env"
    (made / "bin").mkdir(parents=True)
    others = sysconfig.get_path("purelib")
    python = made / "bin/python"
    python.write_text(PYTHON.format(others=others, python=sys._base_executable))  # type: ignore[attr-defined]
    python.chmod(0o755)
    for member in MEMBERS:
        command = ["cp", "-r", f"{ROOT}/libs/{member}/src/.", str(made / "packages")]
        (made / "packages").mkdir(exist_ok=True)
        subprocess.run(command, check=True, timeout=300)
    return made


def spark_home(folder: Path) -> Path:
    """The installed Spark in a folder where its workers may write."""
    folder.mkdir()
    for part in (Path(sysconfig.get_path("purelib")) / "pyspark").iterdir():
        (folder / part.name).symlink_to(part)
    return folder


def test_an_archive_brings_the_package_to_workers_that_have_nothing(broker: Broker, topic: str, folder: Path) -> None:
    """A standalone master with two separate worker processes and a client-mode driver, as on the page on shipping."""
    if not java_found():
        pytest.skip("NO JAVA, so Spark was NOT tested; run `make spark-setup`, which finds or installs Java 17")
    send(broker, topic, numbered(1_000))
    made = environment(folder)
    with tarfile.open(folder / "ortoo-env.tar.gz", "w:gz") as archive:
        archive.add(made, ".")
    (folder / "environment").symlink_to(made)
    environ = os.environ | {
        "PYSPARK_PYTHON": "./environment/bin/python",
        "PYSPARK_DRIVER_PYTHON": str(made / "bin/python"),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_HOME": str(spark_home(folder / "spark")),
    }
    command = [str(Path(sys.executable).parent / "spark-submit"), "--master", "local-cluster[2,1,1024]"]
    command += ["--archives", "ortoo-env.tar.gz#environment", "--conf", "spark.ui.enabled=false"]
    command += [str(ROOT / "tests/spark/shipped_job.py"), broker.address, topic]
    done = subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, timeout=800, check=False)
    assert "rows 1000" in done.stdout, done.stderr[-4000:]
    packages = [line.split()[1:] for line in done.stdout.splitlines() if line.startswith("package ")]
    assert packages
    for _, file in packages:
        assert file.endswith("/environment/packages/ortoo/spark/__init__.py"), file
