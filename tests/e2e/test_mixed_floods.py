"""Twenty seconds of all floods at once; `make hostile` runs them for ten minutes, at full size."""

import dataclasses
from pathlib import Path

import pytest

from tests.hostile.mixed import flooded_at_once

SECONDS, CALM_S, SCALE = 20.0, 3.0, 0.1


@pytest.mark.parametrize("transport", ["grpc", "h2"])
@pytest.mark.timeout(400)
async def test_roles_survive_all_floods_at_once(tmp_path: Path, transport: str) -> None:
    """G14, G17: no role ends or passes the chart's limit, memory is released, and no honest message is lost.

    Latencies are the business of the long run, because other tests run on this machine.
    """
    verdict = await flooded_at_once(tmp_path, seconds=SECONDS, calm_s=CALM_S, scale=SCALE, transport=transport)
    assert dataclasses.replace(verdict, siege_p99_ms=0.0).faults() == [], verdict
