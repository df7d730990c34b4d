"""Each planted bug can be planted in the code of today."""

import subprocess
import sys

PROGRAM = """
from tests.simulation.planted.table import planted

for name, (where, plant) in planted().items():
    try:
        plant()
    except Exception as error:
        print(where, repr(error))
"""


def test_each_planted_bug_changes_code_that_exists() -> None:
    """A bug that names a removed function cannot be planted, so that it proves nothing. In a process of its own."""
    planting = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False)
    assert (planting.returncode, planting.stdout) == (0, ""), planting.stderr
