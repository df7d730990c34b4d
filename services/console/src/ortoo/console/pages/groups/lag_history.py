"""The lag of a group over the last hour: values for a chart, and a table of the same values."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from starlette.responses import JSONResponse, Response

from ortoo.client import LagHistory, LagSample
from ortoo.console.cluster.partial import Answer, ask
from ortoo.console.web.visit import Page, Visit

STEP_MS = 300_000
"""The time of one row of the table."""
NOTHING: dict[str, list[Any]] = {"times_s": [], "lags": [], "left_s": []}


@dataclass(frozen=True, slots=True)
class LagRow:
    """The largest lag within five minutes."""

    at_ms: int
    lag_messages: int
    is_incomplete: bool
    retention_left_ms: int | None
    """The smallest time until retention reaches an unfinished message; None = not known, or not at all."""


async def recorded(visit: Visit, group: str, topic: str) -> Answer[LagHistory]:
    """The lag of a group, or the reason why it is not shown, such as a snode of an older version."""
    return await ask(visit.admin.groups.lag_history(group, topic))


async def values(visit: Visit) -> Response:
    """The values of the chart."""
    found = await recorded(visit, visit.name(), visit.query("topic"))
    return JSONResponse(NOTHING if found.value is None else chart_values(found.value))


def chart_values(history: LagHistory) -> dict[str, list[Any]]:
    """The columns of the chart: times, lags, and the seconds until retention. None = a gap, where no sample is."""
    samples = list(history.samples)
    columns: dict[str, list[Any]] = {"times_s": [], "lags": [], "left_s": []}

    def add(at_ms: int, lag: int | None, left_ms: int | None) -> None:
        columns["times_s"].append(at_ms / 1000)
        columns["lags"].append(lag)
        columns["left_s"].append(None if left_ms is None else left_ms / 1000)

    for sample, following in pairwise([*samples, None]):
        assert sample is not None
        add(sample.at_ms, None if sample.is_incomplete else sample.lag_messages, sample.retention_left_ms)
        if following is not None and following.at_ms > sample.at_ms + history.interval_ms:
            add(sample.at_ms + history.interval_ms, None, None)
    return columns


def table_rows(samples: Sequence[LagSample]) -> list[LagRow]:
    """The samples in steps of five minutes, the latest first."""
    steps: dict[int, list[LagSample]] = {}
    for one in samples:
        steps.setdefault(one.at_ms // STEP_MS * STEP_MS, []).append(one)
    return [
        LagRow(
            at_ms,
            max(one.lag_messages for one in step),
            any(one.is_incomplete for one in step),
            min((one.retention_left_ms for one in step if one.retention_left_ms is not None), default=None),
        )
        for at_ms, step in sorted(steps.items(), reverse=True)
    ]


PAGES = (Page("/groups/{name}/lag-history", values),)
