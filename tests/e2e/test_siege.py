"""A quarter of a minute of siege; `make hostile` runs it for ten minutes."""

from pathlib import Path

import pytest

from tests.hostile.siege import besieged

SECONDS, CALM_S, SEED = 15.0, 5.0, 11
HALF_OPEN, DEAF, CALLS_MIN = 600, 40, 100
MEMORY_MIB_MAX = 400.0
SLOWER_MAX = 10.0
"""Other tests share the processor here; `make hostile` asks for the promised factor."""


@pytest.mark.timeout(300)
def test_honest_clients_go_on_under_siege(tmp_path: Path) -> None:
    """G14, G17: hostile traffic does not end a role, fill its memory or its log, or delay honest clients."""
    verdict = besieged(
        tmp_path, seconds=SECONDS, calm_s=CALM_S, number=SEED, half_open=HALF_OPEN, deaf=DEAF, calls_min=CALLS_MIN
    )
    assert verdict.broken(memory_mib_max=MEMORY_MIB_MAX, slower_max=SLOWER_MAX) == [], verdict
