"""The lag of a group over a time, as values for charts and a table.

The cluster keeps the last hour. Longer times, with rates, come from Prometheus if the console has its URL.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from starlette.responses import JSONResponse, Response

from ortoo.client import LagHistory, LagSample
from ortoo.common.errors import Invalid, NotFound
from ortoo.console.cluster.partial import Answer, ask
from ortoo.console.cluster.prometheus import Prometheus, Values
from ortoo.console.web.visit import Page, Visit

MINUTE_MS = 60_000
RATE_MS_MIN = 4 * MINUTE_MS
"""The shortest time over which a rate is computed: several scrapes."""
PARTS = 10
"""Number of points of time in a step, of which the largest lag counts."""


@dataclass(frozen=True, slots=True)
class TimeSpan:
    """A time up to now."""

    name: str
    label: str
    span_ms: int
    step_ms: int
    """Time between two points of a chart."""
    row_ms: int
    """The time of one row of the table."""


HOUR = TimeSpan("1h", "hour", 60 * MINUTE_MS, 10_000, 5 * MINUTE_MS)
SPANS = {
    one.name: one
    for one in (
        HOUR,
        TimeSpan("6h", "6 hours", 6 * 60 * MINUTE_MS, MINUTE_MS, 30 * MINUTE_MS),
        TimeSpan("24h", "24 hours", 24 * 60 * MINUTE_MS, 5 * MINUTE_MS, 120 * MINUTE_MS),
        TimeSpan("7d", "7 days", 7 * 24 * 60 * MINUTE_MS, 30 * MINUTE_MS, 720 * MINUTE_MS),
    )
}


@dataclass(frozen=True, slots=True)
class Rates:
    """Messages in a second, by time."""

    stored: Values
    """Stored in the topics."""
    delivered: Values
    """Delivered to the group."""


@dataclass(frozen=True, slots=True)
class RecordedLag:
    """The lag of a group over a time, or the reason why it is not shown; with rates if they are known."""

    span: TimeSpan
    history: Answer[LagHistory]
    rates: Answer[Rates]


@dataclass(frozen=True, slots=True)
class LagRow:
    """The largest lag within the time of a row."""

    at_ms: int
    lag_messages: int
    is_incomplete: bool
    retention_left_ms: int | None
    """The smallest time until retention reaches an unfinished message; None = not known, or not at all."""
    stored_per_s: float | None = None
    """The average rate; None = not known."""
    delivered_per_s: float | None = None


async def recorded(visit: Visit, group: str, topic: str) -> RecordedLag:
    """The lag over the time that the address names. Errors: Invalid, and those of the cluster for the user."""
    span, prometheus = SPANS.get(visit.query("range") or HOUR.name), visit.console.prometheus
    if span is None or (span is not HOUR and prometheus is None):
        expected = ", ".join(SPANS if prometheus is not None else (HOUR.name,))
        raise Invalid(f"{visit.query('range')[:40]!r}; expected {expected}", field="range")
    if span is HOUR or prometheus is None:
        return RecordedLag(span, await ask(visit.admin.groups.lag_history(group, topic)), Answer())
    described = await visit.admin.groups.describe(group)  # checks the permissions of the user
    topics = [one.topic for one in described.progress]
    if topic and topic not in topics:
        raise NotFound(f"the group does not consume topic {topic[:200]}", field="topic")
    now_ms = visit.clock.now_ms()  # the points of all values have the same times
    history, rates = await asyncio.gather(
        ask(_lags(prometheus, now_ms, span, group, topic)),
        ask(_rates(prometheus, now_ms, span, group, [topic] if topic else topics)),
    )
    return RecordedLag(span, history, rates)


async def _lags(prometheus: Prometheus, now_ms: int, span: TimeSpan, group: str, topic: str) -> LagHistory:
    """The largest lag of each step. Errors: Unavailable."""
    topics = (topic, f"%RETRY%{group}") if topic else ()
    lag, latency_ms, used = (
        prometheus.select(metric, topics=topics, consumer_group=group)
        for metric in (
            "rocketmq_consumer_lag_messages",
            "rocketmq_consumer_lag_latency",
            "ortoo_group_retention_used_ratio",
        )
    )
    step_s = span.step_ms // 1000
    times = {"end_ms": now_ms, "span_ms": span.span_ms, "step_ms": span.step_ms}
    lags, left_ms = await asyncio.gather(
        # A series that has just begun may have no point of time yet.
        prometheus.values(f"max_over_time(sum({lag})[{step_s}s:{step_s // PARTS}s]) or sum({lag})", **times),
        prometheus.values(f"min({latency_ms} / ({used} > 0) - {latency_ms})", **times),
    )
    samples = [
        LagSample(at_ms, round(value), round(left_ms[at_ms]) if at_ms in left_ms else None)
        for at_ms, value in lags.items()
    ]
    return LagHistory(tuple(samples), span.step_ms)


async def _rates(prometheus: Prometheus, now_ms: int, span: TimeSpan, group: str, topics: Sequence[str]) -> Rates:
    """Errors: Unavailable."""
    if not topics:
        return Rates({}, {})
    window_s = max(span.step_ms, RATE_MS_MIN) // 1000
    selectors = (
        prometheus.select("rocketmq_messages_in_total", topics=topics),
        prometheus.select("rocketmq_messages_out_total", topics=topics, consumer_group=group),
    )
    times = {"end_ms": now_ms, "span_ms": span.span_ms, "step_ms": span.step_ms}
    queries = (prometheus.values(f"sum(rate({one}[{window_s}s]))", **times) for one in selectors)
    return Rates(*await asyncio.gather(*queries))


async def values(visit: Visit) -> Response:
    """The values of the charts."""
    found = await recorded(visit, visit.name(), visit.query("topic"))
    if found.history.value is None:
        return JSONResponse(chart_values(LagHistory((), found.span.step_ms), found.rates.value))
    return JSONResponse(chart_values(found.history.value, found.rates.value))


def chart_values(history: LagHistory, rates: Rates | None = None) -> dict[str, list[Any]]:
    """The columns of the charts: times, lags, seconds until retention, and rates. None = a gap without a sample."""
    samples = {one.at_ms: one for one in history.samples}
    stored, delivered = (rates.stored, rates.delivered) if rates is not None else ({}, {})
    columns: dict[str, list[Any]] = {"times_s": [], "lags": [], "left_s": [], "stored": [], "delivered": []}

    def add(at_ms: int) -> None:
        sample = samples.get(at_ms)
        left_ms = sample.retention_left_ms if sample is not None else None
        columns["times_s"].append(at_ms / 1000)
        columns["lags"].append(None if sample is None or sample.is_incomplete else sample.lag_messages)
        columns["left_s"].append(None if left_ms is None else left_ms / 1000)
        columns["stored"].append(stored.get(at_ms))
        columns["delivered"].append(delivered.get(at_ms))

    for at_ms, following_ms in pairwise([*sorted(samples.keys() | stored.keys() | delivered.keys()), None]):
        assert at_ms is not None
        add(at_ms)
        if following_ms is not None and following_ms > at_ms + history.interval_ms:
            add(at_ms + history.interval_ms)
    return columns


def table_rows(samples: Sequence[LagSample], row_ms: int = HOUR.row_ms, rates: Rates | None = None) -> list[LagRow]:
    """The samples in steps of `row_ms`, the latest first."""
    steps: dict[int, list[LagSample]] = {}
    for one in samples:
        steps.setdefault(one.at_ms // row_ms * row_ms, []).append(one)
    stored, delivered = (rates.stored, rates.delivered) if rates is not None else ({}, {})
    return [
        LagRow(
            at_ms,
            max(one.lag_messages for one in step),
            any(one.is_incomplete for one in step),
            min((one.retention_left_ms for one in step if one.retention_left_ms is not None), default=None),
            _average([stored[one.at_ms] for one in step if one.at_ms in stored]),
            _average([delivered[one.at_ms] for one in step if one.at_ms in delivered]),
        )
        for at_ms, step in sorted(steps.items(), reverse=True)
    ]


def _average(numbers: Sequence[float]) -> float | None:
    return sum(numbers) / len(numbers) if numbers else None


PAGES = (Page("/groups/{name}/lag-history", values),)
