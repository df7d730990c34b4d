"""Floods and huge requests of unauthenticated clients; `make hostile` has the long forms of both."""

from pathlib import Path

import pytest

from tests.hostile.floods import empty_elements, halves, long_headers, resets, silent_calls, watchers
from tests.hostile.large_requests import beyond, costs_of_requests
from tests.hostile.strangers import flooded

QUICK = (empty_elements, watchers, silent_calls, long_headers, resets, halves)
SCALE = 0.1
TIME_MS_MAX, MEMORY_MIB_MAX = 2_000.0, 200.0
"""Generous: the documented limits are an eighth and half of these."""


TRANSPORTS = pytest.mark.parametrize("transport", ["grpc", "h2"])


@TRANSPORTS
@pytest.mark.timeout(400)
async def test_no_flood_ends_a_role_and_its_memory_comes_back(tmp_path: Path, transport: str) -> None:
    """G17: a tenth of each flood, against each role, within the chart's limits. Floods of resets are disconnected."""
    costs, broken = await flooded(tmp_path, [one.__name__ for one in QUICK], SCALE, each=False, transport=transport)
    assert broken == [], costs


@TRANSPORTS
@pytest.mark.timeout(400)
async def test_no_list_costs_a_role_much(tmp_path: Path, transport: str) -> None:
    """G17: 8 MiB of the shortest elements of each list of each method."""
    costs = await costs_of_requests(tmp_path, ["elements"], transport)
    assert beyond(costs, TIME_MS_MAX, MEMORY_MIB_MAX) == []
    assert sum("has more than" in one.answer for one in costs) > 50
