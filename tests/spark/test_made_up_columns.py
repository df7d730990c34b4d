"""A column that is added to the table of columns alone is a column of Spark."""

import subprocess
import sys

import pytest

pytest.importorskip("pyarrow", reason="pyarrow is not installed; run `make spark-setup`")

from tests.repo.tree import ROOT

PROGRAM = [sys.executable, "-m", "tests.unit.common.records.made_up_columns", "spark"]


def test_spark_reads_and_writes_a_column_that_only_the_table_names() -> None:
    """Columns of each layout are in the schema of reads and sinks, and keep their values."""
    done = subprocess.run(PROGRAM, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
