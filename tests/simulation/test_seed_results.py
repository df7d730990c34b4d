"""A search through many seeds survives failures and stops, and ends with a table."""

import sys
from pathlib import Path

import pytest

from ortoo.common.errors import Conflict
from ortoo.verification.forks.spawning import outcome
from ortoo.verification.simulation.run.outcome import RunOptions
from ortoo.verification.simulation.run.results import SeedResults, stretches

REPORT = (
    "seed 4: 10 sent, 9 delivered, 2 faults, 36 virtual s in 1.50 s, trace abc of 7\n"
    "FAILED seed 5: 20 sent, 19 delivered, 3 faults, 36 virtual s in 2.50 s, trace abd of 8\n"
    "  [G2] at 7.741 s: the first finding\n"
    "  repeat: python -m ortoo.verification.simulation --seed 5\n"
)


def test_results_stay_in_the_file_and_end_in_a_table(tmp_path: Path) -> None:
    """Only seeds without a result remain, also for the next process; output of the interpreter is not kept."""
    SeedResults(RunOptions(4, replicas=3), tmp_path / "new" / "results").add(f"a warning\n{REPORT}")
    again = SeedResults(RunOptions(1, replicas=3), tmp_path / "new" / "results")
    assert again.remaining(3, 4) == [3, 6]
    assert list(again.failures([3, 4, 5])) == [5]
    rows = again.table(range(1, 9)).splitlines()
    assert rows[2] == "| 2 | 1 | 5 | 30 | 28 | 0.0 | 4 | 2.00 |"
    assert rows[-1] == "| G2 | 5 | [G2] at 7.741 s: the first finding |"


def test_results_of_other_runs_are_not_continued(tmp_path: Path) -> None:
    """Seeds of three replicas say nothing about five."""
    SeedResults(RunOptions(1, replicas=3), tmp_path / "results")
    with pytest.raises(Conflict, match=r"--replicas 3.*name another file"):
        SeedResults(RunOptions(1, replicas=5), tmp_path / "results")


def test_a_process_gets_consecutive_seeds_and_few_of_them() -> None:
    """A process is told its first seed and a number."""
    assert list(stretches([1, 2, 3, 4, 7, 8, 11], 3)) == [(1, 3), (4, 1), (7, 2), (11, 1)]
    assert list(stretches([], 3)) == []


async def test_a_search_goes_on_after_a_failure_and_continues(tmp_path: Path) -> None:
    """Each seed runs once, failed ones too."""
    command = (
        sys.executable, "-m", "ortoo.verification.simulation", "--seconds", "3", "--scenario", "pushing", "--no-faults",
        "--plant", "tests.simulation.planted.conversations:refused_and_stored", "--workers", "1",
        "--results", str(tmp_path / "results"),
    )  # fmt: skip
    code, out, error = await outcome(*command, "--seed", "1", "--seeds", "2")
    assert code == 1, out + error
    assert "FAILED seed 1" in out
    before = (tmp_path / "results").read_text()
    code, out, error = await outcome(*command, "--seed", "1", "--seeds", "3")
    assert code == 1, out + error
    assert out.startswith("3 seeds, ") or "FAILED seed 3" in out
    assert "| G11 | 1" in out
    after = (tmp_path / "results").read_text()
    assert after.startswith(before)
    assert [number for number in range(1, 5) if f"seed {number}: " in after] == [1, 2, 3]


async def test_batches_of_other_options_share_the_processes() -> None:
    """Each batch has its own sum, and its random seeds can be repeated."""
    code, out, error = await outcome(
        sys.executable, "-m", "ortoo.verification.simulation", "--seconds", "1", "--scenario", "pushing", "--no-faults",
        "--workers", "2", "--batch", "1:2:1", "--batch", "3:1:0", "--batch", "1:2:0:16384",
    )  # fmt: skip
    assert code == 0, out + error
    alone, replicas, retention = out.splitlines()
    assert alone.startswith("3 seeds, of which 1 from seed ")
    assert replicas == "1 seeds with 3 replicas, 0 failed"
    assert retention == "2 seeds with retention, 0 failed"
