"""A column that is added to the table of columns alone is known to every codec."""

import subprocess
import sys

from tests.repo.tree import ROOT

PROGRAM = [sys.executable, "-m", "tests.unit.common.records.made_up_columns"]


def test_a_column_of_each_layout_needs_only_its_line_in_the_table() -> None:
    """Writer, reader, arrays, gathering, few rows, concatenation and projection keep the values of new columns."""
    done = subprocess.run(PROGRAM, cwd=ROOT, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stderr
