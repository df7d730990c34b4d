"""Park messages of a group: a preview of the messages, and then exactly these become dead letters."""

from collections.abc import Sequence

from starlette.responses import Response

from ortoo.client import ParkedMessages, Queue
from ortoo.common.errors import Invalid
from ortoo.common.machine.printable import printable_line
from ortoo.console.cluster.partial import Answer, ask
from ortoo.console.web.forms import whole_number
from ortoo.console.web.rendering import path_segment
from ortoo.console.web.visit import Page, Visit

QUEUE_ID_MAX = (1 << 32) - 1


async def show(visit: Visit) -> Response:
    """The preview of a message that the address names; with `message_groups`, also of later messages of its group."""
    group, message_groups = visit.name(), bool(visit.query("message_groups"))
    queue = Queue(visit.query("topic"), visit.query("enode"), visit.query_number("queue", maximum=QUEUE_ID_MAX))
    offset = visit.query_number("offset")
    if not queue.topic or not queue.enode:
        raise Invalid("missing; the address needs topic, enode, queue and offset", field="topic")
    parking = visit.admin.groups.park_messages(group, queue, [offset], message_groups=message_groups, dry_run=True)
    preview: Answer[ParkedMessages] = await ask(parking)
    offsets = [str(one.offset) for one in preview.value.deliveries] if preview.value is not None else []
    words = ("dlq", "park", group, queue.topic, queue.enode, str(queue.queue_id))
    options = ("--message-groups",) if message_groups else ()
    return visit.page(
        "park.html",
        title=f"Park messages of {printable_line(group)}",
        commands=((*words, str(offset), *options, "--dry-run"), *(((*words, *offsets),) if offsets else ())),
        group=group,
        queue=queue,
        offset=offset,
        message_groups=message_groups,
        preview=preview,
        offsets=" ".join(offsets),
    )


async def park(visit: Visit) -> Response:
    """Park the messages of the preview that the group has not finished since."""
    group = visit.name()
    visit.check_confirmed(group, "group to park its messages")
    queue = Queue(visit.field("topic"), visit.field("enode"), visit.field_number("queue", maximum=QUEUE_ID_MAX))
    offsets = read_offsets(visit.field("offsets"))
    await visit.admin.groups.park_messages(group, queue, offsets, reason=visit.field("reason"))
    return visit.redirect(f"/groups/{path_segment(group)}")


def read_offsets(text: str) -> Sequence[int]:
    """The offsets of a preview, separated by spaces. Errors: Invalid."""
    if not text:
        raise Invalid("empty; open the preview again", field="offsets")
    return [whole_number(one, "offsets") for one in text.split()]


PAGES = (Page("/groups/{name}/park", show), Page("/groups/{name}/park/apply", park, is_action=True))
