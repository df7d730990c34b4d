"""Bugs of replicas that are planted in the product are found: one for each kind of check, within a few seeds.

`make planted` searches for the others.
"""

import sys

import pytest

from ortoo.verification.forks.spawning import outcome
from tests.simulation.planted.table import options_of

DUTIES = "tests.simulation.planted.replica_duties"


@pytest.mark.parametrize(
    ("where", "found"),
    [
        (f"{DUTIES}:vote_sent_before_its_sync", "sends request_vote of epoch"),
        (f"{DUTIES}:followers_flush_in_memory", "[duties of a replica]"),
        (f"{DUTIES}:appended_is_called_committed", "committed, which only the disks of"),
        ("tests.simulation.planted.replicas:pop_lease_numbers_restart", "[reads are linearizable]"),
    ],
    ids=lambda value: str(value).rpartition(":")[2],
)
async def test_a_planted_bug_is_found(where: str, found: str) -> None:
    """The run names what was broken, and the command that repeats it."""
    command = (sys.executable, "-m", "ortoo.verification.simulation", "--seeds", "6", "--first", "--plant", where)
    code, out, error = await outcome(*command, *options_of(where))
    assert code == 1, out + error
    assert found in out
