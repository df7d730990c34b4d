"""The counted costs find planted bugs: a search through everything, a copy of everything, a write without a reason."""

import pytest

from tests.simulation.growth.costs import compare, findings
from tests.simulation.growth.planted import BUGS, Planted, a_verdict_searches_all_transactions

QUICK = (a_verdict_searches_all_transactions,)


@pytest.mark.parametrize(
    "bug",
    [pytest.param(one, marks=() if one.plant in QUICK else pytest.mark.deep) for one in BUGS],
    ids=lambda bug: bug.plant.__name__,
)
def test_a_cost_that_grows_is_found(bug: Planted, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cost that the bug makes larger is named; this step alone is enough."""
    bug.plant(monkeypatch)
    found = list(findings(bug.axis, *compare(bug.axis, factor=bug.factor, steps=[bug.step])))
    assert (bug.step, bug.measure) in {(one.step, one.measure) for one in found}, found
