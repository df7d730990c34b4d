"""One message: its fields, its body, and its delivery state for each group with the reasons."""

import asyncio
from dataclasses import dataclass

from starlette.responses import Response

from ortoo.client import Explanation, Queue, StoredMessage
from ortoo.common.errors import Forbidden, Invalid
from ortoo.console.cluster.messages import message_at
from ortoo.console.cluster.partial import Answer, ask
from ortoo.console.web.rendering import BODY_SHOWN_BYTES, show_place
from ortoo.console.web.visit import Page, Visit

GROUPS_MAX = 20
"""Groups whose view is shown. Others are named, and their view can be opened."""
ORIGIN_TOPIC = "DLQ_ORIGIN_TOPIC"
"""The property of a dead letter with the topic of its message."""
COMMANDS_MAX = 3
"""Groups for which the page shows the command."""


@dataclass(frozen=True, slots=True)
class GroupView:
    """The delivery of the message to a group."""

    group: str
    explained: Answer[Explanation]


async def show(visit: Visit) -> Response:
    """The page of one message."""
    queue, offset = _place(visit)
    found = await message_at(visit.client, queue, offset)
    groups = await ask(visit.admin.groups.describe_topic_groups(queue.topic))
    names = sorted({*groups.value.subscribed, *groups.value.with_offsets}) if groups.value else []
    views = await asyncio.gather(*(_view(visit, group, found) for group in names[:GROUPS_MAX]))
    return visit.page(
        "message.html",
        title="Message",
        commands=(
            ("message", "at", queue.topic, queue.enode, str(queue.queue_id), str(offset)),
            *(("explain", group, queue.topic, found.message_id) for group in names[:COMMANDS_MAX]),
        ),
        found=found,
        place=show_place(queue, offset),
        groups=groups,
        views=views,
        other_groups=names[GROUPS_MAX:],
        body_shown_bytes=BODY_SHOWN_BYTES,
        is_text=_is_text(found.message.body),
        copy_topic=found.message.properties.get(ORIGIN_TOPIC, queue.topic),
    )


async def body(visit: Visit) -> Response:
    """The bytes of the body, as a file: browsers never interpret them."""
    if visit.settings.bodies_hidden:
        raise Forbidden("this console shows no bodies (its setting bodies_hidden); use the ortoo command")
    queue, offset = _place(visit)
    found = await message_at(visit.client, queue, offset)
    headers = {
        "content-disposition": 'attachment; filename="body.bin"',
        "content-security-policy": "default-src 'none'; sandbox",
    }
    return Response(found.message.body, media_type="application/octet-stream", headers=headers)


async def _view(visit: Visit, group: str, found: StoredMessage) -> GroupView:
    explaining = visit.admin.operations.explain_consumption(group, found.queue.topic, found.message_id)
    return GroupView(group, await ask(explaining))


def _place(visit: Visit) -> tuple[Queue, int]:
    topic, enode = visit.query("topic"), visit.query("enode")
    if not topic or not enode:
        raise Invalid("missing; the address needs topic, enode, queue and offset", field="topic")
    queue_id = visit.query_number("queue", maximum=(1 << 32) - 1)
    return Queue(topic, enode, queue_id), visit.query_number("offset")


def _is_text(body: bytes) -> bool:
    try:
        body.decode()
    except UnicodeDecodeError:
        return False
    return True


PAGES = (Page("/message", show), Page("/message/body", body))
