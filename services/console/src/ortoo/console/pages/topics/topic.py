"""One topic: its queues, its groups, its newest messages as they arrive, and a form that sends one."""

from collections.abc import AsyncIterator
from contextlib import aclosing

from starlette.responses import Response, StreamingResponse

from ortoo.client import Message, OrtooError
from ortoo.common.errors import Invalid, Overloaded
from ortoo.common.machine.printable import printable_line
from ortoo.console.cluster.messages import follow_topic, newest_of_topic
from ortoo.console.cluster.partial import ask
from ortoo.console.web.rendering import path_segment
from ortoo.console.web.visit import Page, Visit

SHOWN_MESSAGES = 50
SHOWN_QUEUES = 64
DELAY_MAX_S = 365 * 86_400


async def show(visit: Visit) -> Response:
    """The page of one topic."""
    name = visit.name()
    described = await visit.admin.describe_topic(name)
    groups = await ask(visit.admin.groups.describe_topic_groups(name))
    newest = await ask(newest_of_topic(visit.client, name, SHOWN_MESSAGES))
    names = sorted({*groups.value.subscribed, *groups.value.with_offsets}) if groups.value else []
    return visit.page(
        "topic.html",
        title=f"Topic {printable_line(name)}",
        commands=(("topic", "describe", name), ("tail", name), ("send", name, "BODY")),
        topic=described.topic,
        queues=described.queues[:SHOWN_QUEUES],
        queue_count=len(described.queues),
        message_count=sum(one.end_offset - one.begin_offset for one in described.queues),
        unreachable=described.unreachable_enodes,
        groups=groups,
        group_names=names,
        subscribed=set(groups.value.subscribed) if groups.value else set(),
        newest=newest,
        messages=newest.value or (),
        most=SHOWN_MESSAGES,
        sent=visit.query("sent"),
    )


async def live(visit: Visit) -> Response:
    """Server-sent events: first the newest messages, then the messages that arrive, as rows of the table."""
    name = visit.name()
    await visit.admin.describe_topic(name)
    if visit.console.live_pages >= visit.settings.live_pages_max:
        raise Overloaded(f"{visit.settings.live_pages_max} pages follow topics already; close one, and try again")
    return StreamingResponse(_events(visit, name), media_type="text/event-stream")


async def _events(visit: Visit, name: str) -> AsyncIterator[str]:
    with visit.console.live_page():
        event = "first"
        try:
            async with aclosing(follow_topic(visit.client, name, SHOWN_MESSAGES, visit.clock)) as steps:  # type: ignore[type-var]
                async for messages, omitted in steps:
                    if visit.console.stopping.is_set():
                        return
                    yield (
                        _event(event, visit.fragment("message_rows.html", messages=messages)) if messages else ": \n\n"
                    )
                    event = "rows" if messages else event
                    if omitted and event == "rows":
                        yield _event("omitted", f"{omitted:,}")
        except OrtooError as error:
            yield _event("refused", printable_line(str(error)))


def _event(name: str, text: str) -> str:
    lines = "".join(f"data: {line}\n" for line in text.splitlines())
    return f"event: {name}\n{lines}\n"


async def send(visit: Visit) -> Response:
    """Send one message."""
    name = visit.name()
    body = visit.form.get("body", "").replace("\r\n", "\n").encode()
    delay_s = visit.field_number("delay_s", maximum=DELAY_MAX_S)
    keys = tuple(visit.field("keys").split())
    deliver_at_ms = visit.clock.now_ms() + delay_s * 1000 if delay_s else None
    message = Message(
        body, visit.field("tag") or None, keys, properties=_properties(visit), deliver_at_ms=deliver_at_ms
    )
    async with visit.client.producer(name) as producer:
        receipt = await producer.send(message)
    return visit.redirect(f"/topics/{path_segment(name)}?sent={path_segment(receipt.message_id)}#messages")


def _properties(visit: Visit) -> dict[str, str]:
    found = {}
    for line in visit.field("properties").splitlines():
        name, equals, value = line.partition("=")
        if not equals:
            raise Invalid(f"{line[:60]!r}; expected NAME=VALUE in each line", field="properties")
        found[name.strip()] = value
    return found


async def delete(visit: Visit) -> Response:
    """Delete the topic; it can be restored for a day."""
    name = visit.name()
    if visit.field("confirmed") != name:
        raise Invalid("does not match; type the name of the topic to delete it", field="confirmed")
    await visit.admin.delete_topic(name)
    return visit.redirect("/topics")


PAGES = (
    Page("/topics/{name}", show),
    Page("/topics/{name}/live", live),
    Page("/topics/{name}/send", send, is_action=True),
    Page("/topics/{name}/delete", delete, is_action=True),
)
