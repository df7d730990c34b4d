"""The time of a finding, as the command prints it."""

import pytest

from ortoo.cli.doctor.run import _since
from ortoo.client.admin.doctor.findings import DoctorFinding


@pytest.mark.parametrize(
    ("since_ms", "seen_from_ms", "text"), [(0, 0, ""), (2_000, 1_000, ", since "), (2_000, 2_000, ", at least since ")]
)
def test_a_problem_of_the_first_check_is_at_least_so_old(since_ms: int, seen_from_ms: int, text: str) -> None:
    """The process has no check from before the first one, so the problem may be older."""
    found = DoctorFinding("disk full", "o", "r", since_ms=since_ms, seen_from_ms=seen_from_ms)
    assert _since(found).startswith(text)
    assert bool(_since(found)) is bool(since_ms)
