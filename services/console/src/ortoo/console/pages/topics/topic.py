"""One topic: its queues, its groups, its newest messages as they arrive, and a form that sends one."""

from collections.abc import AsyncIterator
from contextlib import aclosing

from starlette.responses import Response, StreamingResponse

from ortoo.client import Message, OrtooError, Queue
from ortoo.common.errors import Invalid, Overloaded
from ortoo.common.machine.printable import printable_line
from ortoo.console.cluster.messages import follow_topic, message_at, newest_of_topic
from ortoo.console.cluster.partial import ask
from ortoo.console.web.rendering import path_segment
from ortoo.console.web.visit import Page, Visit

SHOWN_MESSAGES = 50
SHOWN_QUEUES = 64
DELAY_MAX_S = 365 * 86_400
KEEP_ALIVE = ": \n\n"
"""An empty event."""


async def show(visit: Visit) -> Response:
    """The page of one topic."""
    name = visit.name()
    described = await visit.admin.describe_topic(name)
    groups = await ask(visit.admin.groups.describe_topic_groups(name))
    newest = await ask(newest_of_topic(visit.client, name, SHOWN_MESSAGES))
    draft = await ask(_draft(visit))
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
        draft=draft,
        form=draft.value or Message(b""),
    )


async def _draft(visit: Visit) -> Message:
    """The message for the form: a copy of the message that the address names, or an empty one. Errors: NotFound."""
    enode = visit.query("copy_enode")
    if not enode or visit.bodies_hidden:
        return Message(b"")
    queue = Queue(visit.query("copy_topic"), enode, visit.query_number("copy_queue", maximum=(1 << 32) - 1))
    found = (await message_at(visit.client, queue, visit.query_number("copy_offset"))).message
    try:
        found.body.decode()
    except UnicodeDecodeError:
        raise Invalid("the body is not UTF-8, so it cannot be edited here; download it", field="body") from None
    return found.without_system_properties()


async def live(visit: Visit) -> Response:
    """Server-sent events: first the newest messages, then the messages that arrive, as rows of the table."""
    name = visit.name()
    await visit.admin.describe_topic(name)
    if visit.console.shared.live_pages >= visit.settings.live_pages_max:
        raise Overloaded(f"{visit.settings.live_pages_max} pages follow topics already; close one, and try again")
    return StreamingResponse(_events(visit, name), media_type="text/event-stream")


async def _events(visit: Visit, name: str) -> AsyncIterator[str]:
    with visit.console.shared.live_page():
        event = "first"
        following = follow_topic(visit.client, name, SHOWN_MESSAGES, visit.clock, visit.console.shared.stopping)
        try:
            async with aclosing(following) as steps:  # type: ignore[type-var]
                async for messages, omitted in steps:
                    if visit.console.sessions.is_over(visit.session):
                        yield _event("refused", "the session has ended; open the page again")
                        return
                    rows = visit.fragment("message_rows.html", messages=messages) if messages else ""
                    yield _event(event, rows) if rows else KEEP_ALIVE
                    event = "rows" if rows else event
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
    visit.check_confirmed(name, "topic to delete it")
    await visit.admin.delete_topic(name)
    return visit.redirect("/topics")


PAGES = (
    Page("/topics/{name}", show),
    Page("/topics/{name}/live", live),
    Page("/topics/{name}/send", send, is_action=True),
    Page("/topics/{name}/delete", delete, is_action=True),
)
