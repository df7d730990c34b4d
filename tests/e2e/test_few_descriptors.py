"""A short run with few descriptors; `make descriptors` has 10,000 segments and 20,000 connections."""

from pathlib import Path

import pytest

from tests.e2e.few_descriptors import run


@pytest.mark.timeout(300)
async def test_many_segments_and_idle_connections_stop_nothing(tmp_path: Path) -> None:
    """A log of more segments than descriptors is written and read, and idle connections take only their share.

    During that, `ortoo doctor` names the limit. When they are closed, new clients connect. No process was restarted.
    """
    verdict = await run(tmp_path, limit=256, segments=280, connections=400, sends=40, say=lambda _: None)
    assert verdict.broken == [], verdict
    assert verdict.segments > 256 > verdict.open_max
    assert verdict.open_segments_max <= 32 + 4
