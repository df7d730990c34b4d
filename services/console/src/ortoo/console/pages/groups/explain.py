"""Why a group does not consume a topic, or one message: a chain of reasons, and the first unfinished messages."""

from starlette.responses import Response

from ortoo.client import Explanation, MessageDeliveries
from ortoo.common.machine.printable import printable_line
from ortoo.console.cluster.partial import Answer, ask
from ortoo.console.web.visit import Page, Visit

UNFINISHED_SHOWN = 20
"""Unfinished messages of each queue."""
ROWS_SHOWN = 200


async def show(visit: Visit) -> Response:
    """The form, and the explanation when a topic is given."""
    group, topic, message = visit.name(), visit.query("topic"), visit.query("message")
    described = await ask(visit.admin.groups.describe(group))
    topics = [one.topic for one in described.value.progress] if described.value else []
    explained: Answer[Explanation] = Answer()
    deliveries: Answer[MessageDeliveries] = Answer()
    if topic:
        explained = await ask(visit.admin.operations.explain_consumption(group, topic, message))
        if not message:
            deliveries = await ask(visit.admin.operations.list_deliveries(group, topic, limit=UNFINISHED_SHOWN))
    found = deliveries.value
    words = ("explain", group, topic, message) if message else ("explain", group, topic)
    return visit.page(
        "explain.html",
        title=f"Why group {printable_line(group)} waits",
        commands=(words, ("delivery", group, topic)) if topic else (),
        group=group,
        topic=topic,
        message=message,
        topics=topics,
        explained=explained,
        deliveries=deliveries,
        rows=found.messages[:ROWS_SHOWN] if found else (),
        more=bool(found and (found.more or len(found.messages) > ROWS_SHOWN)),
        unreachable=found.unreachable_enodes if found else (),
    )


PAGES = (Page("/groups/{name}/explain", show),)
