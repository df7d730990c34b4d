"""Counts agree with their nouns and verbs."""

import pytest

from ortoo.common.logs.counts import counted


@pytest.mark.parametrize(
    ("count", "verb", "text"),
    [
        (0, "", "0 messages"),
        (1, "", "1 message"),
        (2, "wait", "2 messages wait"),
        (1, "wait", "1 message waits"),
        (1, "are", "1 message is"),
        (3, "are", "3 messages are"),
        (1, "have", "1 message has"),
    ],
)
def test_a_count_agrees(count: int, verb: str, text: str) -> None:
    """One is singular, all other numbers are plural."""
    assert counted(count, "message", verb) == text
