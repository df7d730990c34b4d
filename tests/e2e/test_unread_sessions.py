"""A snode whose clients do not read stays within its memory, and serves the clients that do."""

from pathlib import Path

from ortoo.verification.forks.spawning import forking
from tests.e2e.unread_sessions import SENT, unread_sessions

BUDGET_BYTES, RESIDENT_BYTES_MAX = 256 << 20, 320 << 20
"""In the proportion of the long run (`make hostile`): 10,000 sessions under 512 MiB, and 640 MiB resident at most."""


async def test_unread_sessions_and_tails_cost_bounded_memory(tmp_path: Path) -> None:
    """G17: 800 unread push sessions and 16 unread tails under 256 MiB. An honest session gets every message."""
    with forking(wanted=False):  # a forked process has memory resident that it does not use
        seen = await unread_sessions(tmp_path, sessions=800, tails=16, budget_bytes=BUDGET_BYTES)
    assert seen.received == SENT
    assert seen.largest_bytes < RESIDENT_BYTES_MAX
