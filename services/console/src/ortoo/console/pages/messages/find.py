"""Find a message: by its id alone, or by an id or a key in a topic, within a time range."""

import datetime

from starlette.responses import Response

from ortoo.client import NotFound, StoredMessage
from ortoo.common.errors import Invalid
from ortoo.common.records.message_id import message_address
from ortoo.console.cluster.partial import Answer, ask
from ortoo.console.web.rendering import query_of
from ortoo.console.web.visit import Page, Visit

SHOWN_FIRST, SHOWN_MAX = 50, 1_000
LISTED_TOPICS_MAX = 20_000
"""Topics among which the topic of an id is searched."""
LISTED_AT_ONCE = 1_000
PLACEHOLDER_GROUP = "console"
"""A group in the call that explains a message that no group can get yet."""


async def show(visit: Visit) -> Response:
    """The form, and the messages that were found."""
    topic, text = visit.query("topic"), visit.query("text")
    begin, end = visit.query("begin"), visit.query("end")
    begin_ms, end_ms = time_ms(begin, "begin"), time_ms(end, "end")
    count = visit.query_number("count", default=SHOWN_FIRST, maximum=SHOWN_MAX)
    looked = ""
    if text and not topic and message_address(text) is not None:
        topic, looked = await _topic_of_id(visit, text)
    found: Answer[list[StoredMessage]] = Answer([])
    unreachable: tuple[str, ...] = ()
    reasons: Answer[tuple[str, ...]] = Answer(())
    if text and topic:
        by_id = await ask(visit.admin.find_messages(topic, message_id=text, limit=1))
        result = by_id
        if by_id.value is not None and not by_id.value.messages:
            by_key = visit.admin.find_messages(
                topic, key=text, begin_ms=begin_ms, end_ms=end_ms, limit=min(count + 1, SHOWN_MAX)
            )
            result = await ask(by_key)
        messages = list(result.value.messages) if result.value else []
        unreachable = result.value.unreachable_enodes if result.value else ()
        found = Answer(messages, result.error)
        if not messages and not result.error:
            reasons = await ask(_deferred(visit, topic, text))
    shown = (found.value or [])[:count]
    has_more = len(found.value or []) > count or (len(shown) == count == SHOWN_MAX)
    more = {"topic": topic, "text": text, "begin": begin, "end": end, "count": min(count * 4, SHOWN_MAX)}
    searched = bool(text)
    return visit.page(
        "find_message.html",
        title="Find a message",
        commands=(("message", "get", topic, text), ("message", "find", topic, "--key", text)) if text and topic else (),
        topic=topic,
        text=text,
        begin=begin,
        end=end,
        searched=searched,
        looked=looked,
        found=found,
        messages=shown,
        unreachable=unreachable,
        reasons=reasons,
        more_address=visit.link(f"/messages{query_of(more)}") if has_more and count < SHOWN_MAX else "",
        is_at_limit=has_more and count == SHOWN_MAX,
        shown_max=SHOWN_MAX,
    )


async def _topic_of_id(visit: Visit, message_id: str) -> tuple[str, str]:
    """The topic of a message id that contains the id of its topic, or the number of topics that were searched."""
    address = message_address(message_id)
    after, seen = "", 0
    while address is not None and seen < LISTED_TOPICS_MAX:
        page = await visit.admin.list_topics(after=after, limit=LISTED_AT_ONCE)
        found = next((one.name for one in page if one.topic_id == address.topic_id), None)
        if found is not None:
            return found, ""
        seen += len(page)
        after = page[-1].name if page else ""
        if len(page) < LISTED_AT_ONCE:
            return "", (
                f"None of the {seen:,} topics has the id that this message id contains. The topic was deleted, or the "
                "message is delayed or belongs to an open transaction: give the topic to find it."
            )
    return "", f"The first {seen:,} topics do not have the id in this message id. Give the topic to look further."


async def _deferred(visit: Visit, topic: str, message_id: str) -> tuple[str, ...]:
    """Why a message is not stored in the topic yet; empty if it is unknown there. Errors: those of the snode."""
    try:
        explained = await visit.admin.operations.explain_consumption(PLACEHOLDER_GROUP, topic, message_id)
    except NotFound:
        return ()
    return tuple(one.observed for one in explained.reasons)


def time_ms(text: str, field: str) -> int:
    """A time from a field, in UTC unless it names an offset; 0 for an empty text. Errors: Invalid."""
    if not text:
        return 0
    try:
        moment = datetime.datetime.fromisoformat(text)
    except ValueError as error:
        raise Invalid(f"{text[:40]!r}; expected a time such as 2026-01-31T12:00:00", field=field) from error
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=datetime.UTC)
    return max(0, int(moment.timestamp() * 1000))


PAGES = (Page("/messages", show),)
