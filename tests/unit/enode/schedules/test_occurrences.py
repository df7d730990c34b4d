"""When schedules are due: cron fields in zones with daylight-saving time, intervals, and late occurrences."""

import contextlib
from collections.abc import Iterator
from datetime import UTC, datetime, time, timedelta
from itertools import islice, takewhile
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ortoo.common.errors import Invalid
from ortoo.enode.changes.schedules import CatchUp, SchedulePut
from ortoo.enode.schedules.occurrences import (
    LATE_MAX,
    LATE_MS,
    Cron,
    Interval,
    Rule,
    check_rule,
    due_occurrences,
    next_occurrence,
)

HOUR_MS = 3_600_000
ZONES = ("Europe/Berlin", "America/New_York", "America/St_Johns", "Africa/Casablanca", "Asia/Kolkata", "UTC")
CHANGES_OF_CLOCKS = (
    *(datetime(2027, 3, 28, 1, tzinfo=UTC), datetime(2027, 10, 31, 1, tzinfo=UTC)),  # Berlin
    *(datetime(2027, 3, 14, 7, tzinfo=UTC), datetime(2027, 11, 7, 6, tzinfo=UTC)),  # New York
)
minutes = st.sampled_from(["*", "*/5", "*/30", "0", "30", "0,30", "10-20", "59"])
hours = st.sampled_from(["*", "*/2", "0", "1", "2", "3", "1,2", "2,3", "0-3", "14"])


def put(cron: str = "", timezone: str = "", period_ms: int = 0, now_ms: int = 1_800_000_000_000) -> SchedulePut:
    """A schedule with a rule."""
    return SchedulePut(1, 0, now_ms, now_ms, 0, period_ms, CatchUp.LAST, False, b"m", "s", cron, timezone)


def milliseconds(at: datetime) -> int:
    """A time as milliseconds since 1970."""
    return int(at.timestamp()) * 1000


def local(*fields: int, zone: str = "Europe/Berlin", fold: int = 0) -> int:
    """A local time as milliseconds since 1970; `fold` 1 is the second run of a repeated hour."""
    year, month, day, hour, minute = (*fields, 0)[:5]
    return milliseconds(datetime(year, month, day, hour, minute, tzinfo=ZoneInfo(zone), fold=fold))


def numbers(field: str, stop: int) -> set[int]:
    """The numbers that a field of the strategies above matches."""
    found: set[int] = set()
    for part in field.split(","):
        span, _, step = part.partition("/")
        first, _, last = span.partition("-")
        low, high = (0, stop - 1) if span == "*" else (int(first), int(last or first))
        found.update(range(low, high + 1, int(step or 1)))
    return found


def expected(minute: str, hour: str, zone: ZoneInfo, begin_ms: int, end_ms: int) -> list[int]:
    """All occurrences of a daily rule in (begin, end], found by looking at every time."""
    found: set[int] = set()
    if minute.startswith("*") or hour.startswith("*"):
        for at_ms in range(begin_ms // 60_000 * 60_000, end_ms + 1, 60_000):
            at = datetime.fromtimestamp(at_ms // 1000, zone)
            if at.minute in numbers(minute, 60) and at.hour in numbers(hour, 24):
                found.add(at_ms)
    else:
        day = datetime.fromtimestamp(begin_ms // 1000, zone).date() - timedelta(days=1)
        while day <= datetime.fromtimestamp(end_ms // 1000, zone).date():
            for one in (time(h, m) for h in numbers(hour, 24) for m in numbers(minute, 60)):
                at = datetime.combine(day, one, tzinfo=zone)
                while at.astimezone(UTC).astimezone(zone) != at:  # a time that the clocks skip
                    at += timedelta(minutes=1)
                found.add(milliseconds(at))
            day += timedelta(days=1)
    return sorted(at_ms for at_ms in found if begin_ms < at_ms <= end_ms)


def chained(rule: Rule, begin_ms: int) -> Iterator[int]:
    """The occurrences after a time, each found from the one before, as a running enode does."""
    while True:
        begin_ms = next(rule.after(begin_ms))
        yield begin_ms


@settings(max_examples=150, deadline=None)
@given(minutes, hours, st.sampled_from(ZONES), st.sampled_from(CHANGES_OF_CLOCKS), st.integers(-6 * 3600, 6 * 3600))
def test_each_local_time_occurs_as_the_documentation_says(
    minute: str, hour: str, zone_name: str, change: datetime, shift_s: int
) -> None:
    """Around changes of the clocks: forwards, backwards, and each occurrence found from the one before."""
    zone, begin_ms = ZoneInfo(zone_name), milliseconds(change) + shift_s * 1000
    end_ms, rule = begin_ms + 30 * HOUR_MS, Cron(f"{minute} {hour} * * *", zone)
    wanted = expected(minute, hour, zone, begin_ms, end_ms)
    assert list(takewhile(lambda at_ms: at_ms <= end_ms, rule.after(begin_ms))) == wanted
    assert list(takewhile(lambda at_ms: at_ms <= end_ms, chained(rule, begin_ms))) == wanted
    assert list(takewhile(lambda at_ms: at_ms > begin_ms, rule.until(end_ms)))[::-1] == wanted


def test_a_skipped_time_occurs_after_the_gap_and_a_repeated_time_once() -> None:
    """Berlin: 02:30 does not exist on 28 March 2027, and exists twice on 31 October 2027."""
    daily = Cron("30 2 * * *", ZoneInfo("Europe/Berlin"))
    assert list(islice(daily.after(local(2027, 3, 27, 12)), 2)) == [local(2027, 3, 28, 3), local(2027, 3, 29, 2, 30)]
    assert list(islice(daily.after(local(2027, 10, 30, 12)), 2)) == [
        local(2027, 10, 31, 2, 30),
        local(2027, 11, 1, 2, 30),
    ]
    half_hourly = Cron("*/30 * * * *", ZoneInfo("Europe/Berlin"))
    assert list(islice(half_hourly.after(local(2027, 10, 31, 1, 45)), 4)) == [
        *(local(2027, 10, 31, 2, minute) for minute in (0, 30)),
        *(local(2027, 10, 31, 2, minute, fold=1) for minute in (0, 30)),
    ]


@given(st.integers(0, 10**13), st.integers(1_000, 10**9), st.integers(0, 10**13))
def test_an_interval_counts_from_its_start(started_at_ms: int, period_ms: int, time_ms: int) -> None:
    """Its first occurrence is one period after the start."""
    rule = Interval(started_at_ms, period_ms)
    first = next(rule.after(time_ms))
    assert first > time_ms
    assert first > started_at_ms
    assert (first - started_at_ms) % period_ms == 0
    assert first - period_ms <= max(time_ms, started_at_ms)
    latest = next(rule.until(time_ms), None)
    assert latest == (first - period_ms if first - period_ms > started_at_ms else None)


NOW_MS = 10_000_000_000
MINUTELY = Interval(NOW_MS - 100 * HOUR_MS, 60_000)


@pytest.mark.parametrize(
    ("catch_up", "late"),
    [
        (CatchUp.SKIP, []),
        (CatchUp.LAST, [NOW_MS - 60_000]),
        (CatchUp.ALL, [NOW_MS - minutes_ago * 60_000 for minutes_ago in range(10, 0, -1)]),
    ],
)
def test_late_occurrences_follow_the_policy(catch_up: CatchUp, late: list[int]) -> None:
    """After ten minutes without a leader; the occurrence of this minute is not late."""
    due = due_occurrences(MINUTELY, NOW_MS - 11 * 60_000, NOW_MS, catch_up)
    assert due == [*late, NOW_MS]
    assert next_occurrence(MINUTELY, NOW_MS - 11 * 60_000, NOW_MS, catch_up) == due[0]
    assert next_occurrence(MINUTELY, NOW_MS, NOW_MS, catch_up) == NOW_MS + 60_000


def test_only_the_newest_late_occurrences_are_sent() -> None:
    """The number of messages after a long outage has a limit."""
    due = due_occurrences(MINUTELY, NOW_MS - 99 * HOUR_MS, NOW_MS, CatchUp.ALL)
    assert due == [NOW_MS - number * 60_000 for number in range(LATE_MAX, -1, -1)]


@given(st.integers(-(10**7), 10**7), st.integers(0, 10**7), st.sampled_from(CatchUp))
def test_nothing_is_due_early_or_twice(settled: int, ago: int, catch_up: CatchUp) -> None:
    """Whatever the clock did: due occurrences are after the settled ones, and not in the future."""
    now_ms = NOW_MS - ago
    due = due_occurrences(MINUTELY, NOW_MS - settled, now_ms, catch_up)
    assert due == sorted(set(due))
    assert all(NOW_MS - settled < at_ms <= now_ms for at_ms in due)
    in_time = [at_ms for at_ms in due if at_ms > now_ms - LATE_MS]
    assert len(in_time) == (1 if NOW_MS - settled < next(MINUTELY.until(now_ms)) else 0)


@pytest.mark.parametrize(
    ("schedule", "field"),
    [
        (put(), "cron"),
        (put("* * * * *", period_ms=5_000), "cron"),
        (put("* * * *"), "cron"),
        (put("* * * * * *"), "cron"),
        (put("61 * * * *"), "cron"),
        (put("0 0 31 2 *"), "cron"),
        (put("0 0 30 2 *"), "cron"),
        (put("é * * * *"), "cron"),
        (put("0 " * 5_000), "cron"),
        (put("* * * * *", "Europe"), "timezone"),
        (put("* * * * *", "../etc/passwd"), "timezone"),
        (put("* * * * *", "Mars/Olympus"), "timezone"),
        (put(timezone="Europe/Berlin", period_ms=5_000), "timezone"),
        (put(period_ms=999), "period_ms"),
        (put(period_ms=1 << 60), "period_ms"),
    ],
)
def test_a_wrong_rule_is_refused_with_its_field(schedule: SchedulePut, field: str) -> None:
    """The error names the field and a valid form."""
    with pytest.raises(Invalid) as refused:
        check_rule(schedule)
    assert refused.value.field == field
    assert len(str(refused.value)) < 500


@given(st.text("0123456789*/,-#LW MONFRI", max_size=24))
@settings(deadline=None)
def test_any_text_is_a_rule_or_is_refused(text: str) -> None:
    """No text ends a process."""
    with contextlib.suppress(Invalid):
        check_rule(put(text))


@pytest.mark.parametrize("cron", ["0 6 * * 1-5", "0 6 * * MON-FRI", "*/15 * * * *", "0 0 29 2 *", "0 12 L * *"])
def test_usual_rules_are_accepted(cron: str) -> None:
    """Names of days, steps, and rare days."""
    check_rule(put(cron, "Europe/Berlin"))
