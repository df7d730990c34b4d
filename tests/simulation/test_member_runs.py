"""Random faults over an enode of three replicas: acknowledged data stay, and all replicas are equal at the end."""

import pytest

from ortoo.verification.simulation.run.outcome import RunOptions
from ortoo.verification.simulation.run.simulation import run


@pytest.mark.parametrize(
    ("seed", "seconds", "kinds"),
    [
        (2, 12.0, ("kill", "emptied disk", "database restored")),
        (10, 15.0, ()),
        (15, 30.0, ()),
        (24, 30.0, ()),
        pytest.param(1007, 15.0, (), marks=pytest.mark.deep),
        pytest.param(30, 60.0, (), marks=pytest.mark.deep),
        pytest.param(102, 60.0, (), marks=pytest.mark.deep),
    ],
)
def test_nothing_is_found(seed: int, seconds: float, kinds: tuple[str, ...]) -> None:
    """A few runs with seeds that once had findings, and one that loses a disk."""
    outcome = run(RunOptions(seed, seconds, kinds=kinds, replicas=3))
    assert outcome.violations == ()


@pytest.mark.parametrize(("seed", "replicas"), [(1, 3), (53, 3), (1, 5)])
def test_nothing_is_found_by_reads(seed: int, replicas: int) -> None:
    """Runs of the reads alone, with seeds that once had findings, and with five replicas."""
    outcome = run(RunOptions(seed, 30.0, scenarios=("reading",), replicas=replicas))
    assert outcome.violations == ()
