"""The lines about the states of a group's messages."""

from ortoo.cli.commands.groups import _state_lines
from ortoo.client import LagByState


def test_the_used_share_of_the_retention_is_shown() -> None:
    """Operators look at it before they lower the retention."""
    assert _state_lines("g", LagByState(waiting=1, retention_used=0.8)) == [
        "  the oldest one has used 80% of its retention"
    ]
