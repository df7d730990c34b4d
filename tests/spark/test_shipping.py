"""How the package comes to executors: an archive that Spark unpacks beside workers that have nothing of ours."""

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
"""An interpreter that knows of ours what lies beside it alone; Spark's and Arrow's packages are those of this one."""


def environment(folder: Path) -> Path:
    """An environment that travels: an interpreter, and our packages."""
    made = folder / "ortoo-env"
    (made / "bin").mkdir(parents=True)
    others = sysconfig.get_path("purelib")
    python = made / "bin/python"
    python.write_text(PYTHON.format(others=others, python=sys._base_executable))  # type: ignore[attr-defined]
    python.chmod(0o755)
    for member in MEMBERS:
        command = ["cp", "-r", f"{ROOT}/libs/{member}/src/.", str(made / "packages")]
        (made / "packages").mkdir(exist_ok=True)
        subprocess.run(command, check=True, timeout=60)
    return made


def spark_home(folder: Path) -> Path:
    """Spark as it is installed, in a folder where its workers may leave theirs."""
    folder.mkdir()
    for part in (Path(sysconfig.get_path("purelib")) / "pyspark").iterdir():
        (folder / part.name).symlink_to(part)
    return folder


def test_an_archive_brings_the_package_to_workers_that_have_nothing(broker: Broker, topic: str, folder: Path) -> None:
    """A standalone master with two workers of their own processes; the page on shipping, as a client-mode driver."""
    if not java_found():
        pytest.skip("NO JAVA: Spark was NOT tested; run `make spark-setup`, which finds or installs Java 17")
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
