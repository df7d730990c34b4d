"""One group: its lag by state, its members and its settings, and pause, resume and deletion."""

import asyncio
from dataclasses import dataclass
from typing import Any

from starlette.responses import HTMLResponse, Response

from ortoo.client import GroupDescription, LagByState, TopicMode, TopicProgress
from ortoo.common.machine.printable import printable_line
from ortoo.console.cluster.partial import ask
from ortoo.console.pages.groups.lag_history import HOUR, SPANS, recorded, table_rows
from ortoo.console.web.rendering import path_segment, query_of
from ortoo.console.web.visit import Page, Visit

MEMBERS_SHOWN = 200
COMMANDS_MAX = 3


@dataclass(frozen=True, slots=True)
class TopicRow:
    """The progress of a group in one topic, with times relative to now."""

    progress: TopicProgress
    mode: str
    oldest_age_ms: int
    """Age of the oldest unfinished message; 0 = all are finished."""
    retention_left_ms: int | None
    """Time until retention reaches the oldest unfinished message; None = all are finished, or not known."""


async def show(visit: Visit) -> Response:
    """The page of one group."""
    name, topic = visit.name(), visit.query("topic")
    state, found = await asyncio.gather(_state(visit), recorded(visit, name, topic))
    history, span, rates = found.history, found.span, found.rates
    topics = [row.progress.topic for row in state["rows"]]
    return visit.page(
        "group.html",
        title=f"Group {printable_line(name)}",
        commands=(
            ("group", "describe", name),
            *(("lag", name, one) for one in topics[:COMMANDS_MAX]),
            ("lag", name, *((topic,) if topic else ()), "--history"),
            ("group", "update", name, "--consume" if not state["described"].group.consume_enabled else "--no-consume"),
        ),
        topics=topics,
        topic=topic,
        history=history,
        history_rows=table_rows(history.value.samples, span.row_ms, rates.value) if history.value is not None else [],
        span=span,
        spans=SPANS.values() if visit.console.prometheus is not None else (HOUR,),
        rates=rates,
        chart_values=query_of({"topic": topic, "range": span.name if span is not HOUR else ""}),
        **state,
    )


async def refresh(visit: Visit) -> Response:
    """The part of the page that changes, for its regular refresh."""
    return HTMLResponse(visit.fragment("group_state.html", **await _state(visit)))


async def _state(visit: Visit) -> dict[str, Any]:
    """The values of the page. Errors: NotFound, Forbidden, Unavailable."""
    described: GroupDescription = await visit.admin.groups.describe(visit.name())
    modes = await ask(visit.admin.groups.list_delivery_modes(visit.name()))
    now_ms = visit.clock.now_ms()
    rows = [topic_row(one, modes.value or (), now_ms) for one in described.progress]
    return {
        "described": described,
        "rows": rows,
        "retries": described.retries,
        "lag": sum(one.progress.lag_messages for one in rows) + described.retries.retrying,
        "lost": sum(one.progress.by_state.lost for one in rows) + described.retries.lost,
        "members": described.members[:MEMBERS_SHOWN],
        "member_count": len(described.members),
    }


def topic_row(progress: TopicProgress, modes: "list[TopicMode] | tuple[()]", now_ms: int) -> TopicRow:
    """The row of a topic at this time."""
    state = progress.by_state
    mode = ", ".join(sorted({one.mode for one in modes if one.topic == progress.topic})) or "not decided"
    age_ms = max(0, now_ms - state.oldest_at_ms) if state.oldest_at_ms else 0
    return TopicRow(progress, mode, age_ms, retention_left_ms(state, age_ms))


def retention_left_ms(state: LagByState, age_ms: int) -> int | None:
    """Time until retention reaches the oldest unfinished message, from the share that it has used."""
    if not state.oldest_at_ms or state.retention_used <= 0:
        return None
    return max(0, round(age_ms / state.retention_used) - age_ms)


async def pause(visit: Visit) -> Response:
    """Stop the consumption of all members."""
    await visit.admin.groups.update(visit.name(), consume_enabled=False)
    return visit.redirect(f"/groups/{path_segment(visit.name())}")


async def resume(visit: Visit) -> Response:
    """Let the members consume again."""
    await visit.admin.groups.update(visit.name(), consume_enabled=True)
    return visit.redirect(f"/groups/{path_segment(visit.name())}")


async def delete(visit: Visit) -> Response:
    """Delete the group; it can be restored for a day."""
    name = visit.name()
    visit.check_confirmed(name, "group to delete it")
    await visit.admin.delete_group(name)
    return visit.redirect("/groups")


PAGES = (
    Page("/groups/{name}", show),
    Page("/groups/{name}/state", refresh),
    Page("/groups/{name}/pause", pause, is_action=True),
    Page("/groups/{name}/resume", resume, is_action=True),
    Page("/groups/{name}/delete", delete, is_action=True),
)
