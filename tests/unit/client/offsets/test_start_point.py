"""Where a group begins in a queue."""

import pytest

from ortoo.client.offsets.start_point import StartRule

LAST, FIRST, TIME = StartRule(), StartRule(from_first=True), StartRule(from_time_ms=1_000)


@pytest.mark.parametrize(
    ("rule", "topic", "expected"),
    [
        (LAST, "t", 90),
        (FIRST, "t", 10),
        (TIME, "t", 40),
        (LAST, "%RETRY%g", 10),
        (FIRST, "%RETRY%g", 10),
        (TIME, "%RETRY%g", 10),
    ],
)
def test_without_a_stored_offset_the_rule_decides(rule: StartRule, topic: str, expected: int) -> None:
    """E-156: on a trimmed queue that holds 10 to 90: its end, its first message, or the first after the time."""
    assert rule.offset(topic, None, 10, 90, 40) == expected


@pytest.mark.parametrize("rule", [LAST, FIRST, TIME])
@pytest.mark.parametrize("committed", [0, 5, 500])
def test_a_stored_offset_always_wins(rule: StartRule, committed: int) -> None:
    """E-156: even one outside what is stored; the pull corrects it."""
    assert rule.offset("t", committed, 10, 90, 40) == committed
    assert not rule.needs_time("t", committed)


def test_the_time_is_looked_up_only_when_it_decides() -> None:
    """Only for the rule by time, only without an offset, and not for failed messages."""
    assert TIME.needs_time("t", None)
    assert not TIME.needs_time("%RETRY%g", None)
    assert not LAST.needs_time("t", None)
