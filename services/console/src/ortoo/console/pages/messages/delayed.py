"""The delayed messages of a topic by due time, and their cancellation."""

from starlette.responses import Response

from ortoo.client import DelayedMessage
from ortoo.console.cluster.partial import Answer, ask
from ortoo.console.pages.messages.time_line import time_line
from ortoo.console.web.rendering import query_of
from ortoo.console.web.visit import Page, Visit

PAGE_MESSAGES = 100
LINE_MESSAGES = 2_000
"""Number of messages on the time line."""


async def show(visit: Visit) -> Response:
    """The form, and one page of the delayed messages when a topic is given."""
    topic, from_ms = visit.query("topic"), visit.query_number("from_ms")
    found: Answer[list[DelayedMessage]] = Answer()
    if topic:
        found = await ask(visit.admin.list_delayed(topic, from_ms=from_ms, limit=LINE_MESSAGES + 1))
    on_line, messages = found.value or [], (found.value or [])[: PAGE_MESSAGES + 1]
    # The next page begins at the time of the first message beyond this page, so that none of that time is left out.
    has_more = len(messages) > PAGE_MESSAGES and messages[-1].deliver_at_ms > messages[0].deliver_at_ms
    following = {"topic": topic, "from_ms": messages[PAGE_MESSAGES].deliver_at_ms if has_more else None}
    return visit.page(
        "delayed.html",
        title="Delayed messages",
        commands=(("delay", "list", topic or "TOPIC"), ("delay", "cancel", "HANDLE")),
        topic=topic,
        found=found,
        messages=messages[:PAGE_MESSAGES],
        is_cut=len(messages) > PAGE_MESSAGES and not has_more,
        next_address=visit.link(f"/delayed{query_of(following)}") if has_more else "",
        is_first=not from_ms,
        line=time_line([one.deliver_at_ms for one in on_line[:LINE_MESSAGES]]),
        line_is_cut=len(on_line) > LINE_MESSAGES,
    )


async def cancel(visit: Visit) -> Response:
    """Cancel a delayed message: it is never delivered."""
    await visit.client.recall(visit.field("handle"))
    return visit.redirect(f"/delayed{query_of({'topic': visit.field('topic')})}")


PAGES = (Page("/delayed", show), Page("/delayed/cancel", cancel, is_action=True))
