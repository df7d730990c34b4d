"""A few short runs with everything but hostile clients; mutants are tried with these, too."""

import pytest

from ortoo.verification.simulation.run.outcome import RunOptions
from ortoo.verification.simulation.run.simulation import run


@pytest.mark.parametrize(
    ("seed", "scenarios", "faults"),
    [
        (1, ("popping", "parking"), ()),
        (2, ("ordering", "rocketmq"), ()),
        (3, ("pushing",), ()),
        (4, ("pushing", "popping"), ("kill", "kill client")),
        (5, ("delaying", "transacting", "deduplicating"), ("power cut",)),
    ],
)
def test_nothing_is_found(seed: int, scenarios: tuple[str, ...], faults: tuple[str, ...]) -> None:
    """The product as it is keeps every promise in these runs."""
    outcome = run(RunOptions(seed, 6.0, faults=bool(faults), scenarios=scenarios, kinds=faults))
    assert outcome.violations == ()
