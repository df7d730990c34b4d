"""Every planted bug, and the search for the first seed that finds it.

python -m tests.simulation.planted.table [--seeds 500] [NAME...]
"""

import argparse
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
    retention,
)

SEEDS_MAX = 500
SEEDS_A_PROCESS = 20
"""The memory of a process grows with its runs."""
NO_FAULTS = ("--no-faults", "--scenario", "cancelling")
CRASHES = ("--fault", "kill", "--fault", "power cut")
READING = ("--replicas", "3", "--scenario", "reading")
"""Bugs of replicas are searched for in runs of this one scenario, which are short."""


def _reading_with(*kinds: str) -> Sequence[str]:
    """The options of runs in which only these kinds of faults happen, so that more of them hit the replicas."""
    return (*READING, *(word for kind in kinds for word in ("--fault", kind)))


CUT_OFF = _reading_with("cut from members", "kill")
CUT_OFF_OR_DOWN = _reading_with("cut from members", "kill", "power cut")
CUT_OFF_OR_PAUSED = _reading_with("cut from members", "pause")
NEW_DISKS = _reading_with("emptied disk", "kill")
NEW_DISKS_OR_DOWN = _reading_with("emptied disk", "power cut")
RETENTION = ("--retention-bytes", "16384")
OPTIONS: Mapping[str, Sequence[str]] = {
    "believe_torn_frames": CRASHES,
    "segment_name_not_synced": CRASHES,
    "pop_cancelled_by_repeating_it": NO_FAULTS,
    "cancelled_and_kept": NO_FAULTS,
    "a_missing_file_is_evidence": ("--replicas", "3", "--fault", "lost file"),
    "an_older_file_is_believed": (*READING, "--fault", "rolled back file"),
    "deposed_leader_answers_reads": _reading_with("cut from members", "clocks apart"),
    "half_is_enough": CUT_OFF,
    "compares_lengths": CUT_OFF,
    "believes_commit_unmatched": CUT_OFF,
    "matches_by_length": CUT_OFF,
    "matches_its_own_end": CUT_OFF,
    "counts_unmatched": CUT_OFF,
    "serves_at_once": CUT_OFF,
    "leads_with_less": CUT_OFF_OR_DOWN,
    "promises_twice": CUT_OFF_OR_DOWN,
    "commits_old_epochs": CUT_OFF_OR_DOWN,
    "obeys_the_old": CUT_OFF_OR_PAUSED,
    "leases_from_the_answer": CUT_OFF_OR_PAUSED,
    "breaks_the_silence": CUT_OFF_OR_PAUSED,
    "counts_what_is_not_flushed": _reading_with("power cut", "cut from members"),
    "promises_downwards": _reading_with("cut from members", "kill", "late and twice"),
    "promises_to_a_later_start": _reading_with("kill", "late and twice"),
    "hears_old_answers": _reading_with("kill", "late and twice", "power cut"),
    "counts_emptied_disks": NEW_DISKS,
    "joins_empty": NEW_DISKS,
    "changes_twice": NEW_DISKS,
    "changes_at_once": NEW_DISKS,
    "forgets_what_it_owes": NEW_DISKS_OR_DOWN,
    "leads_with_a_hole": NEW_DISKS_OR_DOWN,
    "changes_when_committed": _reading_with("emptied disk", "cut from members"),
    "trusts_its_heartbeats": _reading_with("hanging disk"),
    "keeps_leading_full": _reading_with("full disk"),
    "stale_frames_accepted": (*CRASHES, *RETENTION),
    "retention_waits_for_no_group": RETENTION,
    "retention_waits_for_no_follower": (*RETENTION, "--replicas", "3"),
    "dead_letters_not_stored": RETENTION,
}
"""Options for bugs that the standard draw finds too seldom, or not at all. Where processes end, leases expire within
the run."""
OF_REPLICAS: Sequence[ModuleType] = (replicas, replica_duties, replica_rules)
MODULES: Sequence[ModuleType] = (
    durability, idempotence, offsets, pops, deferred, conversations, retention, *OF_REPLICAS,
)  # fmt: skip


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


def seeds_needed(where: str, seeds: int) -> tuple[int, str]:
    """The first of `seeds` seeds that finds the bug, 0 if none does; and the finding."""
    for first in range(1, seeds + 1, SEEDS_A_PROCESS):
        command = [sys.executable, "-m", "ortoo.verification.simulation", "--plant", where, "--seed", str(first)]
        command += options_of(where)
        command += ["--seeds", str(min(SEEDS_A_PROCESS, seeds + 1 - first)), "--first"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        lines = done.stdout.splitlines()
        for number, line in enumerate(lines):
            if line.startswith("FAILED seed "):
                return int(line.split()[2].rstrip(":")), lines[number + 1].strip()
        if done.returncode not in (0, 1):
            return 0, done.stderr[-300:]
    return 0, "not found"


def main(arguments: Sequence[str]) -> int:
    """Search for all of them, or for those named; returns the number not found."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.planted.table", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="planted bugs; all if none is named")
    parser.add_argument("--seeds", type=int, default=SEEDS_MAX, help="the number of seeds to try for each bug")
    given = parser.parse_args(arguments)
    names, missing = given.names, 0
    for name, (where, function) in planted().items():
        if names and name not in names:
            continue
        seed, found = seeds_needed(where, given.seeds)
        missing += not seed
        promise, _, change = (function.__doc__ or "").split("\n\n")[0].partition(": ")
        bug = f"{name.replace('_', ' ')}: {' '.join(change.split()).rstrip('.')}"
        print(f"| {bug} | {promise} | {seed or f'none of {given.seeds}'} | {found[:110]} |", flush=True)  # noqa: T201
    return missing


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
