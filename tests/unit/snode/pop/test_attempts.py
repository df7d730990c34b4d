"""Which pops may repeat an attempt whose messages an enode still holds."""

from dataclasses import replace

from ortoo.snode.pop import attempts
from ortoo.snode.pop.attempts import AWAY_S, NEW_S, RecentAttempts
from ortoo.snode.pop.call import PopCall

CALL = PopCall("g", "t", 1, 1_000, 20_000, "c")


def test_a_consumer_that_stays_repeats_only_attempts_that_got_messages() -> None:
    """A new consumer, or one that was away, may have begun its attempt at another snode."""
    known, now_s = RecentAttempts(), 0.0

    def poll(attempt_id: str, *, has_messages: bool = False) -> bool:
        nonlocal now_s
        call = replace(CALL, attempt_id=attempt_id)
        may_repeat = known.begin(call, now_s)
        now_s += 20.0
        known.end(call, now_s, has_messages=has_messages)
        return may_repeat

    assert [poll(f"a{number}") for number in range(5)] == [True] * int(NEW_S / 20) + [False] * 2
    assert not poll("b", has_messages=True)
    assert poll("b")
    assert not poll("c")
    now_s += AWAY_S + 1
    assert poll("d")


def test_a_pop_without_attempt_repeats_nothing() -> None:
    """It leaves no trace either."""
    known = RecentAttempts()
    assert not known.begin(CALL, 0.0)
    known.end(CALL, 1.0, has_messages=True)
    assert not known.begin(CALL, 2.0)


def test_memory_is_bounded() -> None:
    """The oldest entries are dropped."""
    known = RecentAttempts()
    for number in range(attempts.ATTEMPTS_MAX + 10):
        known.end(replace(CALL, consumer=f"c{number}", attempt_id=f"a{number}"), 0.0, has_messages=True)
    assert len(known._popped) == attempts.ATTEMPTS_MAX
    assert len(known._consumers) == attempts.CONSUMERS_MAX
