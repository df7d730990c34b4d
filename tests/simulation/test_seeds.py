"""Seeds with every fault there is are the same runs in processes of their own; `make check` runs fifty others."""

import os
import re
import subprocess
import sys
from collections.abc import Sequence

import pytest


def simulated(words: Sequence[str], *, hash_seed: str = "random") -> subprocess.CompletedProcess[str]:
    """Run the command of the simulation."""
    command = [sys.executable, "-m", "ortoo.testing.simulation", *words]
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment, timeout=190)


@pytest.mark.timeout(400)
def test_a_seed_is_the_same_run_in_every_process() -> None:
    """Every packet, its moment and its order depend on the seed alone; not on hashes, addresses or the machine."""
    words = ["--seed", "101", "--seeds", "2", "--seconds", "12"]
    first, second = (re.findall(r"trace (\w+) of (\d+)", simulated(words, hash_seed=one).stdout) for one in "12")
    assert len(first) == 2
    assert first[0] != first[1]
    assert first == second
