"""The replication protocol among a few replicas: nothing committed is lost in any case, and each rule is needed."""

import pytest

from ortoo.enode.replication.protocol.rules import Rules
from tests.simulation.replicas.breadth import around, breadth_first, first_world
from tests.simulation.replicas.planted_bugs import SWITCHES, search
from tests.simulation.replicas.walk import SCENARIOS, Walk, first_violation
from tests.simulation.replicas.world import PromisesFirst

QUICK = range(1, 61)


@pytest.mark.parametrize("name", SCENARIOS)
def test_nothing_committed_is_lost_and_a_majority_goes_on(name: str) -> None:
    """Walks of every scenario break no invariant, and each ends with a committed message once all communicate again."""
    assert first_violation(SCENARIOS[name], Rules(), seeds=QUICK, recovers=True) is None


def test_promises_and_the_log_may_reach_the_disk_in_any_order() -> None:
    """They are two files: a vote that is stored before a truncation or flush breaks nothing."""
    assert first_violation(SCENARIOS["power cuts"], Rules(), PromisesFirst, seeds=QUICK, recovers=True) is None


def test_all_that_can_happen_at_first() -> None:
    """From empty disks, every order of the first steps is safe."""
    assert breadth_first(first_world(Rules()), states_max=4_000, epochs_max=2, messages_max=1) >= 4_000


def test_all_that_can_happen_next() -> None:
    """From the ends of walks, every order of the next steps is safe."""
    for seed in range(1, 9):
        around(Walk(SCENARIOS["three members"], seed, Rules()), states_max=300)


@pytest.mark.parametrize("name", SWITCHES)
def test_every_rule_is_needed(name: str) -> None:
    """A disabled rule causes a violation; `make explore` finds the walk again when the protocol changed."""
    seed = SWITCHES[name].seed
    assert search(name, range(seed, seed + 1)) is not None
