"""The targets of `ortoo reset-offset --to`."""

from typing import Any

import pytest

from ortoo.cli.terminal.targets import target_of
from ortoo.common.errors import Invalid


@pytest.mark.parametrize(
    ("to", "target"),
    [
        ("begin", {"offset": 0}),
        ("end", {"time_ms": -1}),
        ("42", {"offset": 42}),
        ("1970-01-01", {"time_ms": 0}),
        ("2026-01-31T12:00:00+01:00", {"time_ms": 1_769_857_200_000}),
    ],
)
def test_a_group_goes_where_it_was_sent(to: str, target: dict[str, Any]) -> None:
    """A name, an offset or a time; a time without a zone is UTC."""
    assert target_of(to, "--to") == target


@pytest.mark.parametrize("to", ["", "²", "-1", "tomorrow", "1969-12-31T23:59:59.999Z", "1960-01-01"])
def test_a_place_that_is_none_is_refused(to: str) -> None:
    """Above all a time before 1970, because -1 ms would mean the end."""
    with pytest.raises(Invalid, match="since 1970"):
        target_of(to, "--to")
