"""The replication protocol among a few members: nothing committed is lost, whatever happens; each rule is needed."""

import pytest

from ortoo.enode.members.rules import Rules
from tests.simulation.members.breadth import around, breadth_first, first_world
from tests.simulation.members.switched_off import SWITCHES, search
from tests.simulation.members.walk import SCENARIOS, Walk, first_violation
from tests.simulation.members.world import PromisesFirst

QUICK = range(1, 61)


@pytest.mark.parametrize("name", SCENARIOS)
def test_nothing_committed_is_lost_and_a_majority_goes_on(name: str) -> None:
    """Walks of every scenario break no invariant, and each ends with a message committed once all talk again."""
    assert first_violation(SCENARIOS[name], Rules(), seeds=QUICK, recovers=True) is None


def test_promises_and_the_log_may_reach_the_disk_in_any_order() -> None:
    """They are two files: a promise that overtakes a cut or a flush breaks nothing."""
    assert first_violation(SCENARIOS["power cuts"], Rules(), PromisesFirst, seeds=QUICK, recovers=True) is None


def test_all_that_can_happen_at_first() -> None:
    """From empty disks, every order of the first steps is right."""
    assert breadth_first(first_world(Rules()), states_max=4_000, epochs_max=2, messages_max=1) >= 4_000


def test_all_that_can_happen_next() -> None:
    """From where walks have led, every order of the next steps is right."""
    for seed in range(1, 9):
        around(Walk(SCENARIOS["three members"], seed, Rules()), states_max=300)


@pytest.mark.parametrize("name", SWITCHES)
def test_every_rule_is_needed(name: str) -> None:
    """Without it something goes wrong; `make explore` finds the walk anew when the protocol changed."""
    seed = SWITCHES[name].seed
    assert search(name, range(seed, seed + 1)) is not None
