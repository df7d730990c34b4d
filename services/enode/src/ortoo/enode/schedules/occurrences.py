"""The occurrences of schedules: their rules, and which occurrences are due. Pure: no clock, no disk, no randomness.

All times are milliseconds since 1970-01-01 UTC.

A rule of five cron fields counts the time of its zone. If neither minute nor hour begins with `*`, each local time
occurs once on a day. A time that the clocks skip occurs at the end of the gap, and a time that they repeat occurs the
first time. All other rules follow the elapsed time: they occur twice in a repeated hour.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import count, islice, takewhile
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from ortoo.common.errors import Invalid
from ortoo.enode.changes.schedules import CatchUp, SchedulePut

PERIOD_MIN_MS = 1_000
PERIOD_MAX_MS = 366 * 86_400_000
CRON_LENGTH_MAX = 256
FIELDS = 5
LATE_MS = 60_000
"""An occurrence that is older than this is late, and the policy for catching up decides about it."""
LATE_MAX = 1_000
"""The number of late occurrences that are sent with `CatchUp.ALL`: the newest ones."""
REPEATED_MS = 3 * 3_600_000
"""No clock repeats more than this. A search for earlier occurrences begins so much later."""


@dataclass(frozen=True, slots=True)
class Interval:
    """Occurs at multiples of a period after a start."""

    started_at_ms: int
    period_ms: int

    def after(self, time_ms: int) -> Iterator[int]:
        """The occurrences after a time, the earliest first, without end."""
        first = max(1, (time_ms - self.started_at_ms) // self.period_ms + 1)
        return count(self.started_at_ms + first * self.period_ms, self.period_ms)

    def until(self, time_ms: int) -> Iterator[int]:
        """The occurrences at or before a time, the latest first."""
        last = (time_ms - self.started_at_ms) // self.period_ms
        return (self.started_at_ms + number * self.period_ms for number in range(last, 0, -1))


@dataclass(frozen=True, slots=True)
class Cron:
    """Occurs at the local times that match an expression."""

    expression: str
    zone: ZoneInfo

    def after(self, time_ms: int) -> Iterator[int]:
        """The occurrences after a time, the earliest first. It ends if there is none within 50 years."""
        for found in CronSim(self.expression, self._local(time_ms)):
            if (found_ms := _milliseconds(found)) > time_ms:
                yield found_ms

    def until(self, time_ms: int) -> Iterator[int]:
        """The occurrences at or before a time, the latest first. It ends if there is none within 50 years."""
        for found in CronSim(self.expression, self._local(time_ms + REPEATED_MS), reverse=True):
            if (found_ms := _milliseconds(found)) <= time_ms:
                yield found_ms

    def _local(self, time_ms: int) -> datetime:
        return datetime.fromtimestamp(time_ms // 1000, UTC).astimezone(self.zone)


Rule = Interval | Cron


def rule_of(schedule: SchedulePut) -> Rule:
    """The rule of a stored schedule."""
    if schedule.period_ms:
        return Interval(schedule.started_at_ms, schedule.period_ms)
    return Cron(schedule.cron, zone_of(schedule.timezone))


def check_rule(schedule: SchedulePut) -> None:
    """Refuse a schedule without a valid rule. Errors: Invalid (cron, timezone, period_ms)."""
    cron, period_ms = schedule.cron, schedule.period_ms
    if bool(cron) == bool(period_ms):
        raise Invalid("give either a cron expression or a period, such as 0 6 * * 1-5 or 30000 ms", field="cron")
    if period_ms:
        if not PERIOD_MIN_MS <= period_ms <= PERIOD_MAX_MS:
            raise Invalid(f"{period_ms} ms; expected {PERIOD_MIN_MS} to {PERIOD_MAX_MS}", field="period_ms")
        if schedule.timezone:
            raise Invalid("a period counts elapsed time: give a time zone only with cron", field="timezone")
        return
    rule = rule_of(schedule)
    try:
        if len(cron) > CRON_LENGTH_MAX or len(cron.split()) != FIELDS:
            raise CronSimError("Wrong number of fields")
        first_ms = next(rule.after(schedule.started_at_ms), None)
    except CronSimError as error:
        raise Invalid(
            f"{cron[:CRON_LENGTH_MAX]!r}: {error}; expected five fields: minute, hour, day of the month, month, "
            "day of the week, such as 0 6 * * 1-5",
            field="cron",
        ) from None
    if first_ms is None:
        raise Invalid(f"{cron!r} matches no time in the next 50 years", field="cron")


def zone_of(name: str) -> ZoneInfo:
    """A time zone of the IANA database; empty = UTC. Errors: Invalid (timezone)."""
    try:
        return ZoneInfo(name or "UTC")
    except (LookupError, ValueError, OSError):
        raise Invalid(
            f"{name[:80]!r} is no time zone; give a name such as Europe/Berlin or UTC", field="timezone"
        ) from None


def due_occurrences(rule: Rule, settled_ms: int, now_ms: int, catch_up: CatchUp) -> list[int]:
    """The occurrences to send now, in order: those after `settled_ms` that are due, without the late ones left out."""
    late_ms = now_ms - LATE_MS
    in_time = takewhile(lambda due_ms: due_ms <= now_ms, rule.after(max(settled_ms, late_ms)))
    if settled_ms >= late_ms:
        return list(in_time)
    limit = {CatchUp.LAST: 1, CatchUp.SKIP: 0, CatchUp.ALL: LATE_MAX}[catch_up]
    late = takewhile(lambda due_ms: due_ms > settled_ms, islice(rule.until(late_ms), limit))
    return [*reversed(list(late)), *in_time]


def next_occurrence(rule: Rule, settled_ms: int, now_ms: int, catch_up: CatchUp) -> int | None:
    """The time at which the schedule is due next: at or before `now_ms` if something is to be sent now."""
    due = due_occurrences(rule, settled_ms, now_ms, catch_up)
    return due[0] if due else next(rule.after(max(settled_ms, now_ms)), None)


def _milliseconds(time: datetime) -> int:
    return int(time.timestamp()) * 1000
