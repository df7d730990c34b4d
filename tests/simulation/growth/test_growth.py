"""The cost of a change beside more topics, groups, clients and enodes, counted in a simulated cluster."""

from fnmatch import fnmatch

import pytest

from tests.simulation.growth.axes import AXES
from tests.simulation.growth.costs import LARGE_CLUSTER, TABLE, compare, findings, is_allowed
from tests.simulation.growth.page import PAGE, page


@pytest.mark.parametrize("axis", AXES)
def test_costs_grow_as_the_table_allows(axis: str) -> None:
    """Changes and the making of many; idleness and restarts are in `make growth`."""
    assert not [str(one) for one in findings(axis, *compare(axis))]


def test_the_page_has_the_table() -> None:
    """`python -m tests.simulation.growth.page` makes it."""
    assert page(PAGE.read_text()) == PAGE.read_text()


def test_each_row_of_the_table_allows_something() -> None:
    """A row that names no axis, or that an earlier row hides, allows nothing."""
    axes = [row.axis for row in TABLE if row.axis != "*"]
    assert all(any(fnmatch(name, axis) for name in (*AXES, LARGE_CLUSTER)) for axis in axes), axes
    assert len({(row.axis, row.step, row.measure) for row in TABLE}) == len(TABLE)


def test_a_cost_that_grows_faster_is_a_finding() -> None:
    """Exponent 1 allows 4.5 times the cost, exponent 0 a twentieth more, and -1 nothing."""
    assert is_allowed(1_000_000, 4_500_000, "enode lines", 1.0)
    assert not is_allowed(1_000_000, 4_510_000, "enode lines", 1.0)
    assert is_allowed(1_000_000, 1_050_000, "enode lines", 0.0)
    assert not is_allowed(1_000_000, 1_060_000, "enode lines", 0.0)
    assert is_allowed(0, 0, "enode written_bytes", -1.0)
    assert not is_allowed(0, 1, "enode written_bytes", -1.0)
