"""Back-off policies."""

import pytest

from ortoo.common.errors import Invalid
from ortoo.common.groups.failure_rule import FailureRule
from ortoo.common.groups.retry_policy import RetryKind, RetryPolicy


def test_the_classic_back_off_is_that_of_the_levels_from_the_third_on() -> None:
    """E-170: 10 s, 30 s, 1 min, … 2 h, and the last one repeats."""
    rule = FailureRule(delays_ms=RetryPolicy().delays_ms)
    assert [rule.delay_ms(attempt) for attempt in (1, 2, 3, 16, 17, 99)] == [
        10_000, 30_000, 60_000, 7_200_000, 7_200_000, 7_200_000,
    ]  # fmt: skip


def test_an_exponential_back_off_grows_up_to_its_longest() -> None:
    """Delays double up to the longest one."""
    assert RetryPolicy.read("exponential:100:1000").delays_ms == (100, 200, 400, 800, 1000)
    assert RetryPolicy.read("exponential:100:100").delays_ms == (100,)


@pytest.mark.parametrize("wrong", [(0, 5, 2.0), (10, 5, 2.0), (1, 5, 0.5)])
def test_a_wrong_back_off_is_refused(wrong: tuple[int, int, float]) -> None:
    """By its name."""
    with pytest.raises(Invalid, match="retry"):
        RetryPolicy(RetryKind.EXPONENTIAL, *wrong).with_defaults()
    with pytest.raises(Invalid, match="retry"):
        RetryPolicy(RetryKind.LIST).with_defaults()


@pytest.mark.parametrize(
    ("typed", "kept", "first_ms"),
    [
        ("classic", "classic", (10_000, 30_000)),
        ("exponential:1s:10m", "exponential:1000:600000:2", (1_000, 2_000)),
        ("exponential:100:1h:1.5", "exponential:100:3600000:1.5", (100, 150)),
        ("list:0,5s,1m", "list:0,5000,60000", (0, 5_000)),
    ],
)
def test_a_back_off_is_read_and_written_as_text(typed: str, kept: str, first_ms: tuple[int, int]) -> None:
    """A typed text, the stored text, and the delays."""
    policy = RetryPolicy.read(typed)
    assert policy.text() == kept
    assert RetryPolicy.read(kept) == policy
    assert policy.delays_ms[:2] == first_ms


@pytest.mark.parametrize("wrong", ["", "classic:1", "exponential:1s", "exponential:2s:1s", "list:", "list:1d", "slow"])
def test_a_text_that_is_no_back_off_is_refused(wrong: str) -> None:
    """The error contains the valid forms."""
    with pytest.raises(Invalid, match="retry"):
        RetryPolicy.read(wrong)
