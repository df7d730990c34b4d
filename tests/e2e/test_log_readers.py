"""Seconds of a log that is not read; `make hostile` takes a minute for each kind of reader."""

from pathlib import Path

import pytest

from tests.e2e.log_readers import READERS, endure

PROCESSES = {"namesrv", "enode-0", "snode-0", "1", "2", "parent"}
"""The last three are the workers of a snode and their parent."""
SECONDS = 2.0


@pytest.mark.timeout(300)
@pytest.mark.parametrize("reader", READERS)
async def test_no_role_ends_or_waits_when_its_log_is_not_read(tmp_path: Path, reader: str) -> None:
    """Each role serves, answers to probes, counts the lines that it dropped, and ends with 0 when it is told to.

    A reader that is back hears of the gap. The parent of workers logs little: a queue is enough where lines may come
    late, and they are lost where they are refused.
    """
    verdict = await endure(tmp_path, reader, seconds=SECONDS)
    assert verdict.broken == [], verdict
    assert verdict.sent > 0
    assert verdict.found > 0
    late = {"parent"} if reader in ("stopped", "slow") else set[str]()
    assert {name for name, count in verdict.dropped.items() if count} >= PROCESSES - late
    assert verdict.dropped.keys() == PROCESSES
    if reader == "stopped":
        assert verdict.told.keys() == {"namesrv", "enode-0", "snode-0", "snode-1"}
