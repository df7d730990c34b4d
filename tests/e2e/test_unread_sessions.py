"""A snode whose clients do not read stays within its memory, and serves those who do."""

from pathlib import Path

from tests.e2e.unread_sessions import SENT, unread_sessions

BUDGET_BYTES, SLACK_BYTES = 96 << 20, 192 << 20
"""The slack is for what is not counted yet: received messages before they are read, and buffers that were freed."""


async def test_unread_sessions_and_tails_cost_bounded_memory(tmp_path: Path) -> None:
    """B-083, G17: 500 unread push sessions and 20 unread tails under 96 MiB; an honest session gets everything."""
    seen = await unread_sessions(tmp_path, sessions=500, tails=20, budget_bytes=BUDGET_BYTES)
    assert seen.received == SENT
    assert seen.largest_bytes - seen.before_bytes < BUDGET_BYTES + SLACK_BYTES
