"""The dead letters of a group with their errors, and their replay with a dry run."""

import asyncio

from starlette.responses import Response

from ortoo.client import DeadLetter, Queue, ReplayProgress, Sql
from ortoo.common.machine.printable import printable_line
from ortoo.console.web.rendering import path_segment, query_of
from ortoo.console.web.visit import Page, Visit

PAGE_DEAD_LETTERS = 50
REPLAY_S = 20.0
"""Time after which a replay stops and reports its progress. Another one continues."""
RATE_MAX = 1_000_000
Position = tuple[Queue, int]


async def show(visit: Visit) -> Response:
    """One page of the dead letters, oldest first on each enode."""
    group, condition = visit.name(), visit.query("where")
    letters = visit.admin.list_dead_letters(
        group,
        _sql(condition),
        dead_letters_max=PAGE_DEAD_LETTERS + 1,
        include_replayed=True,
        after=_position(visit),
    )
    found: list[DeadLetter] = [one async for one in letters]
    shown = found[:PAGE_DEAD_LETTERS]
    return _page(visit, shown, has_more=len(found) > PAGE_DEAD_LETTERS)


def _page(visit: Visit, shown: list[DeadLetter], *, has_more: bool) -> Response:
    group, condition = visit.name(), visit.query("where")
    following = {"where": condition}
    if has_more:
        last = shown[-1]
        following |= {"enode": last.queue.enode, "queue": str(last.queue.queue_id), "offset": str(last.offset)}
    base = visit.link(f"/groups/{path_segment(group)}/dead-letters")
    where_words = ("--where", condition) if condition else ()
    return visit.page(
        "dead_letters.html",
        title=f"Dead letters of {printable_line(group)}",
        commands=(("dlq", "list", group, "--all", *where_words), ("dlq", "replay", group, "--dry-run", *where_words)),
        group=group,
        where=condition,
        letters=shown,
        base=base,
        is_first=_position(visit) is None,
        next_address=f"{base}{query_of(following)}" if has_more else "",
    )


async def preview(visit: Visit) -> Response:
    """A dry run: the number of dead letters that a replay would send."""
    progress = await _replay(visit, dry_run=True)
    return _replay_page(visit, progress, is_dry_run=True)


async def replay(visit: Visit) -> Response:
    """Send the dead letters again, each once."""
    progress = await _replay(visit, dry_run=False)
    return _replay_page(visit, progress, is_dry_run=False)


async def _replay(visit: Visit, *, dry_run: bool) -> ReplayProgress:
    """The progress of the replay when it ended or its time expired. Errors: those of the snode."""
    progress = ReplayProgress(0, 0, 0, done=False)
    try:
        async with asyncio.timeout(REPLAY_S):
            async for step in visit.admin.replay_dead_letters(
                visit.name(),
                _sql(visit.field("where")),
                to_topic=visit.field("to_topic"),
                messages_per_s=visit.field_number("rate", maximum=RATE_MAX),
                messages_max=visit.field_number("count"),
                dry_run=dry_run,
            ):
                progress = step
    except TimeoutError:
        return progress
    return progress


def _replay_page(visit: Visit, progress: ReplayProgress, *, is_dry_run: bool) -> Response:
    group = visit.name()
    where, to_topic = visit.field("where"), visit.field("to_topic")
    rate, count = visit.field("rate"), visit.field("count")
    words = ["dlq", "replay", group]
    for option, value in (("--where", where), ("--to", to_topic), ("--rate", rate), ("-n", count)):
        words += [option, value] if value else []
    return visit.page(
        "replay.html",
        title=f"Replay dead letters of {printable_line(group)}",
        commands=(tuple(words), (*words, "--dry-run")),
        group=group,
        base=visit.link(f"/groups/{path_segment(group)}/dead-letters"),
        progress=progress,
        is_dry_run=is_dry_run,
        where=where,
        to_topic=to_topic,
        rate=rate,
        count=count,
    )


def _sql(condition: str) -> Sql | None:
    return Sql(condition) if condition else None


def _position(visit: Visit) -> Position | None:
    """The place of the last dead letter of the page before."""
    if not (enode := visit.query("enode")):
        return None
    queue = Queue(f"%DLQ%{visit.name()}", enode, visit.query_number("queue", maximum=(1 << 32) - 1))
    return queue, visit.query_number("offset")


PAGES = (
    Page("/groups/{name}/dead-letters", show),
    Page("/groups/{name}/dead-letters/preview", preview, is_action=True),
    Page("/groups/{name}/dead-letters/replay", replay, is_action=True),
)
