"""An enode of three replicas without PostgreSQL, and with an outdated one: real processes."""

from pathlib import Path

import pytest

from tests.e2e.directory_away import directory_away


@pytest.mark.crash
@pytest.mark.timeout(600)
async def test_members_go_on_without_the_directory_and_with_an_old_one(tmp_path: Path) -> None:
    """No new leader and no refused send while it is down, another leader soon after; no loss by an old copy."""
    said: list[str] = []
    assert await directory_away(tmp_path, away_s=5.0, age_s=0.0, rate=50, say=said.append) == [], said
