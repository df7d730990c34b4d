"""Every planted bug, and the search for the first seed that finds it.

python -m tests.simulation.planted.table [NAME...]
"""

import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType

from tests.simulation.planted import (
    conversations,
    deferred,
    durability,
    idempotence,
    offsets,
    pops,
    replica_duties,
    replica_rules,
    replicas,
)

SEEDS_MAX = 500
NO_FAULTS = ("--no-faults", "--scenario", "cancelling")
CRASHES = ("--fault", "kill", "--fault", "power cut")
READING = ("--replicas", "3", "--scenario", "reading")
"""Bugs of replicas are searched for in runs of this one scenario, which are short."""
OPTIONS: Mapping[str, Sequence[str]] = {
    "believe_torn_frames": CRASHES,
    "segment_name_not_synced": CRASHES,
    "pop_cancelled_by_repeating_it": NO_FAULTS,
    "cancelled_and_kept": NO_FAULTS,
    "a_missing_file_is_evidence": ("--replicas", "3", "--fault", "lost file"),
    "an_older_file_is_believed": (*READING, "--fault", "rolled back file"),
    "deposed_leader_answers_reads": (*READING, "--fault", "cut from members", "--fault", "clocks apart"),
}
"""Options for bugs that the standard draw finds too seldom, or not at all. Where processes end, leases expire within
the run."""
OF_REPLICAS: Sequence[ModuleType] = (replicas, replica_duties, replica_rules)
MODULES: Sequence[ModuleType] = (durability, idempotence, offsets, pops, deferred, conversations, *OF_REPLICAS)


def planted() -> Mapping[str, tuple[str, Callable[[], None]]]:
    """Name to (module and function, the function that plants it)."""
    return {
        name: (f"{module.__name__}:{name}", function)
        for module in MODULES
        for name, function in vars(module).items()
        if callable(function) and getattr(function, "__module__", "") == module.__name__ and not name.startswith("_")
    }


def options_of(where: str) -> Sequence[str]:
    """The options of the runs that search for a bug."""
    module, _, name = where.partition(":")
    return OPTIONS.get(name, READING if module in {one.__name__ for one in OF_REPLICAS} else ())


def seeds_needed(where: str) -> tuple[int, str]:
    """The number of seeds needed, 0 if too many; and the findings."""
    for first in range(1, SEEDS_MAX, 10):
        command = [sys.executable, "-m", "ortoo.verification.simulation", "--plant", where, "--seed", str(first)]
        command += options_of(where)
        done = subprocess.run([*command, "--seeds", "10", "--first"], capture_output=True, text=True, check=False)
        lines = done.stdout.splitlines()
        for number, line in enumerate(lines):
            if line.startswith("FAILED seed "):
                return int(line.split()[2].rstrip(":")), lines[number + 1].strip()
        if done.returncode not in (0, 1):
            return 0, done.stderr[-300:]
    return 0, "not found"


def main(names: Sequence[str]) -> int:
    """Search for all of them, or for those named; returns the number not found."""
    missing = 0
    for name, (where, function) in planted().items():
        if names and name not in names:
            continue
        seed, found = seeds_needed(where)
        missing += not seed
        promise, _, change = (function.__doc__ or "").split("\n\n")[0].partition(": ")
        bug = f"{name.replace('_', ' ')}: {' '.join(change.split()).rstrip('.')}"
        print(f"| {bug} | {promise} | {seed or 'not found'} | {found[:110]} |", flush=True)  # noqa: T201
    return missing


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
