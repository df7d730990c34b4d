"""Since when a problem is seen: at every check, without a gap."""

from ortoo.common.errors.finding_history import GAP_MS_MAX, FindingHistory
from ortoo.common.errors.findings import Finding

START_MS = 1_700_000_000_000


def finding(name: str, observed: str = "", subject: str = "") -> Finding:
    """A finding of a process."""
    return Finding(name, observed, "impact", "remedy", subject=subject)


def seen(history: FindingHistory, at_s: int, *found: Finding) -> dict[tuple[str, str], int]:
    """Name and subject to the second since which it is seen, after a check at this second."""
    checked = history.check(found, START_MS + at_s * 1000)
    return {(one.name, one.subject): (one.since_ms - START_MS) // 1000 for one in checked}


def test_a_problem_is_seen_since_the_first_of_consecutive_checks() -> None:
    """Its text may change, such as a number in it. Another subject is another problem."""
    history = FindingHistory()
    assert seen(history, 0) == {}
    assert seen(history, 15, finding("lag", "5 wait", "g")) == {("lag", "g"): 15}
    assert seen(history, 30, finding("lag", "7 wait", "g"), finding("lag", "1", "h")) == {
        ("lag", "g"): 15,
        ("lag", "h"): 30,
    }
    assert seen(history, 45, finding("lag", "2 wait", "h")) == {("lag", "h"): 30}
    assert seen(history, 60, finding("lag", "9 wait", "g")) == {("lag", "g"): 60}


def test_a_problem_of_the_first_check_may_be_older() -> None:
    """At the start, and after a time without checks, nothing is known about the time before."""
    history = FindingHistory()
    [first] = history.check([finding("disk full")], START_MS)
    assert first.since_ms == first.seen_from_ms == START_MS
    later_ms = START_MS + GAP_MS_MAX + 1
    [again] = history.check([finding("disk full")], later_ms)
    assert again.since_ms == again.seen_from_ms == later_ms
    [other, _] = history.check([finding("new"), finding("disk full")], later_ms + 1000)
    assert (other.since_ms, other.seen_from_ms) == (later_ms + 1000, later_ms)
    [before] = history.check([finding("disk full")], START_MS)  # the clock was set back
    assert before.since_ms == before.seen_from_ms == START_MS


def test_a_check_that_is_less_thorough_changes_nothing() -> None:
    """It may have missed a problem, and found one that is none. Times that are known are in its answer."""
    history = FindingHistory()
    assert seen(history, 0) == {}
    assert seen(history, 15, finding("clock differs")) == {("clock differs", ""): 15}
    known, unknown = history.check(
        [finding("clock differs"), finding("unreachable")], START_MS + 20_000, is_usual=False
    )
    assert (known.since_ms, known.seen_from_ms) == (START_MS + 15_000, START_MS)
    assert (unknown.since_ms, unknown.seen_from_ms) == (0, 0)
    assert history.check([], START_MS + 25_000, is_usual=False) == []
    assert seen(history, 30, finding("clock differs"), finding("unreachable")) == {
        ("clock differs", ""): 15,
        ("unreachable", ""): 30,
    }
