"""One message: its fields, its body, and its delivery state for each group with the reasons."""

import asyncio
from dataclasses import dataclass

from starlette.responses import Response

from ortoo.client import Explanation, Queue, StoredMessage
from ortoo.common.errors import Forbidden, Invalid
from ortoo.common.logs.logger import get_logger
from ortoo.console import log_events
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

_log = get_logger("console")


@dataclass(frozen=True, slots=True)
class GroupView:
    """The delivery of the message to a group."""

    group: str
    explained: Answer[Explanation]


async def show(visit: Visit) -> Response:
    """The page of one message."""
    return await _show(visit, is_revealed=False)


async def reveal(visit: Visit) -> Response:
    """The page of one message with the content that the console masks. The request is logged."""
    _check_not_hidden(visit)
    return await _show(visit, is_revealed=True)


async def _show(visit: Visit, *, is_revealed: bool) -> Response:
    queue, offset = _place(visit)
    found, groups = await asyncio.gather(
        message_at(visit.client, queue, offset), ask(visit.admin.groups.describe_topic_groups(queue.topic))
    )
    if is_revealed:
        _log_shown(visit, queue, offset)
    names = sorted({*groups.value.subscribed, *groups.value.with_offsets}) if groups.value else []
    copy_topic = found.message.properties.get(ORIGIN_TOPIC, queue.topic)
    may_copy = not visit.settings.read_only and (await visit.rights_on(copy_topic)).send
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
        copy_topic=copy_topic,
        may_copy=may_copy and not visit.bodies_hidden,
        may_reveal=visit.settings.bodies_masked and not visit.settings.bodies_hidden and not is_revealed,
        is_masked=visit.settings.bodies_masked,
        **({"bodies_hidden": False} if is_revealed else {}),
    )


async def body(visit: Visit) -> Response:
    """The bytes of the body, as a file: browsers never interpret them."""
    _check_not_hidden(visit)
    if visit.settings.bodies_masked:
        raise Forbidden("this console masks bodies (its setting bodies_masked); open the page of the message")
    return await _body(visit, *_place(visit))


async def download(visit: Visit) -> Response:
    """The bytes of a body that the console masks. The request is logged."""
    _check_not_hidden(visit)
    queue, offset = _place(visit)
    response = await _body(visit, queue, offset)
    _log_shown(visit, queue, offset)
    return response


async def _body(visit: Visit, queue: Queue, offset: int) -> Response:
    found = await message_at(visit.client, queue, offset)
    headers = {
        "content-disposition": 'attachment; filename="body.bin"',
        "content-security-policy": "default-src 'none'; sandbox",
    }
    return Response(found.message.body, media_type="application/octet-stream", headers=headers)


def _check_not_hidden(visit: Visit) -> None:
    if visit.settings.bodies_hidden:
        raise Forbidden("this console shows no bodies (its setting bodies_hidden); use the ortoo command")


def _log_shown(visit: Visit, queue: Queue, offset: int) -> None:
    fields = visit.console.cluster.log_fields
    _log.emit(
        log_events.BODY_SHOWN, user=visit.session.user, topic=queue.topic, place=show_place(queue, offset), **fields
    )


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


PAGES = (
    Page("/message", show),
    Page("/message/body", body),
    Page("/message/reveal", reveal, is_action=True, changes_cluster=False),
    Page("/message/download", download, is_action=True, changes_cluster=False),
)
