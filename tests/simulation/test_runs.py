"""Whole runs: the same seed gives the same run, and a run finds defects and prints how to repeat it."""

import math
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ortoo.verification.forks.spawning import outcome
from ortoo.verification.simulation.run.outcome import RunOptions
from ortoo.verification.simulation.run.seeds import SEEDS_A_PROCESS, shares
from ortoo.verification.simulation.run.simulation import run


def outcomes(*, hash_seed: int, gc_threshold: int, arguments: list[str]) -> list[str]:
    """The output of a separate process about its runs, without their durations."""
    program = (
        f"import gc, sys; from ortoo.verification.simulation.run.command import main; gc.set_threshold({gc_threshold})"
    )
    done = subprocess.run(
        [sys.executable, "-c", f"{program}; sys.exit(main({arguments!r}))"],
        env={**os.environ, "PYTHONHASHSEED": str(hash_seed)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return [line.split(" trace ")[1] for line in done.stdout.splitlines()]


@pytest.mark.parametrize(
    ("seed", "seeds", "trouble"), [(1, 2, []), (8, 1, ["--replicas", "3"])], ids=["one disk", "members"]
)
def test_a_seed_is_one_run_in_every_process(seed: int, seeds: int, trouble: list[str]) -> None:
    """With every fault: equal traces for all hash seeds, collector thresholds and process ids.

    With several replicas, calls of several clients end together when the leader changes.
    """
    arguments = ["--seed", str(seed), "--seeds", str(seeds), "--seconds", "8", *trouble]
    first = outcomes(hash_seed=0, gc_threshold=700, arguments=arguments)
    second = outcomes(hash_seed=4242, gc_threshold=1, arguments=arguments)
    assert len(set(first)) == len(first) == seeds
    assert first == second


@pytest.mark.parametrize("seeds", [0, 1, 2, 7, 50, 300])
def test_seeds_are_shared_evenly(seeds: int) -> None:
    """Each once; a process has few enough for its memory, and the workers are balanced."""
    processes = list(shares(5, seeds, 2))
    assert [first + number for first, count in processes for number in range(count)] == list(range(5, 5 + seeds))
    assert all(count <= SEEDS_A_PROCESS for _, count in processes)
    halves = [sum(count for _, count in processes[half::2]) for half in (0, 1)]
    assert abs(halves[0] - halves[1]) <= math.ceil(len(processes) / 2)


def test_a_trace_names_every_delivery(tmp_path: Path) -> None:
    """Each with its time, sender, receiver, method, length and CRC."""
    with (tmp_path / "trace").open("w") as trace:
        seen = run(RunOptions(3, 2.0, faults=False, scenarios=("pushing",)), trace_file=trace)
    lines = (tmp_path / "trace").read_text().splitlines()
    assert len(lines) == seen.lines
    published = [line.split() for line in lines if "/ortoo.v1.ProducerService/Produce " in line]
    time_s, way, _, length, crc = next(words for words in published if len(words) == 5)
    assert 0.0 < float(time_s) < 2.5
    assert ">" in way
    assert int(length) > 0
    assert len(crc) == 8


def test_a_run_can_be_seen_again() -> None:
    """The printed command has all options that a run depends on."""
    choices = RunOptions(7, 10.0, (2, 5), scenarios=("popping",), kinds=("power cut",), plant="a.b:c")
    assert choices.command() == (
        "python -m ortoo.verification.simulation --seed 7 --seconds 10 --without 2,5 --scenario popping "
        "--fault 'power cut' --plant a.b:c"
    )


@pytest.mark.parametrize(
    ("plant", "promise", "arguments"),
    [
        ("durability:give_offsets_again", "[G3]", ["--scenario", "pushing", "--fault", "power cut"]),
        ("offsets:committed_in_memory_only", "[G10]", ["--scenario", "pushing", "--fault", "kill"]),
        ("pops:order_forgotten", "[G5]", ["--scenario", "ordering", "--no-faults"]),
        ("pops:acknowledged_in_memory_only", "[G8]", ["--scenario", "popping", "--fault", "kill"]),
        ("deferred:delivered_early", "[G6]", ["--scenario", "delaying", "--no-faults"]),
        ("conversations:refused_and_stored", "[G11]", ["--scenario", "pushing", "--no-faults"]),
        ("conversations:an_empty_directory_is_believed", "[G", ["--scenario", "pushing", "--fault", "kill"]),
        ("conversations:seals_are_not_checked", "[permissions]", ["--scenario", "rocketmq", "--no-faults"]),
        pytest.param(
            "replicas:a_missing_file_is_evidence",
            "[G",
            ["--replicas", "3", "--fault", "lost file"],
            marks=pytest.mark.deep,
        ),
        ("conversations:a_task_is_left_behind", "[no task is left", ["--scenario", "pushing", "--no-faults"]),
    ],
)
async def test_a_planted_bug_is_found(plant: str, promise: str, arguments: list[str]) -> None:
    """One for each kind of promise, within a few seeds; `make planted` searches for the others."""
    command = (sys.executable, "-m", "ortoo.verification.simulation", "--seeds", "8", "--first", *arguments)
    code, out, error = await outcome(*command, "--plant", f"tests.simulation.planted.{plant}")
    assert code == 1, out + error
    assert promise in out
    assert "repeat: python -m ortoo.verification.simulation --seed" in out
