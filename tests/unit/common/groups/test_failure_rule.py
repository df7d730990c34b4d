"""The retry rule: the delay after each attempt, and when a message is parked."""

from hypothesis import given
from hypothesis import strategies as st

from ortoo.common.groups.failure_rule import REASON_ATTEMPTS, REASON_REQUESTED, FailureRule, Park, Retry


def test_tries_count_from_one_and_the_last_one_parks() -> None:
    """With three attempts a handler sees a message three times; the last delay stands for all later ones."""
    rule = FailureRule(3, (5, 7))
    assert [rule.after_attempt(attempt) for attempt in (1, 2, 3)] == [
        Retry(5, 1),
        Retry(7, 2),
        Park(REASON_ATTEMPTS, 3),
    ]
    assert FailureRule(0, (5, 7)).after_attempt(1_000) == Retry(7, 1_000)


def test_what_does_not_count_never_parks_and_what_is_asked_for_does() -> None:
    """A consumer whose database is down releases messages without counting; it can also park one at once."""
    rule = FailureRule(3, (5,))
    assert rule.after_attempt(3, counts=False) == Retry(5, 2)
    assert rule.after_attempt(1, park=True) == Park(REASON_REQUESTED, 1)


@given(st.integers(1, 50), st.lists(st.integers(0, 1_000), min_size=1, max_size=8))
def test_every_message_that_always_fails_ends_after_exactly_so_many_tries(attempts_max: int, delays: list[int]) -> None:
    """Holds for any delays."""
    rule, attempt = FailureRule(attempts_max, tuple(delays)), 1
    while isinstance(verdict := rule.after_attempt(attempt), Retry):
        assert verdict.delay_ms == delays[min(attempt, len(delays)) - 1]
        attempt += 1
    assert (verdict.attempt, attempt) == (attempts_max, attempts_max)
