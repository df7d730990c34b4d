"""The list of topics, the creation of a topic, and the restoring of deleted topics."""

from starlette.responses import Response

from ortoo.console.cluster.partial import ask
from ortoo.console.pages.name_list import read_deleted, read_page
from ortoo.console.web.rendering import path_segment
from ortoo.console.web.visit import Page, Visit

QUEUES_MAX = 4_096


async def show(visit: Visit) -> Response:
    """One page of the topics, with the numbers of their messages."""
    topics, values = await read_page(visit, visit.admin.list_topics)
    described = await ask(visit.admin.describe_topics([one.name for one in topics]))
    counts = {
        one.topic.name: sum(queue.end_offset - queue.begin_offset for queue in one.queues)
        for one in described.value or ()
    }
    partial = {one.topic.name: one.unreachable_enodes for one in described.value or ()}
    deleted = await read_deleted(visit.admin.list_deleted_topics, is_first=values["is_first"])
    return visit.page(
        "topics.html",
        title="Topics",
        commands=(("topic", "list"),),
        listed=topics,
        counts=counts,
        described=described,
        unreachable=sorted({enode for enodes in partial.values() for enode in enodes}),
        partial=partial,
        **values,
        **deleted,
    )


async def create(visit: Visit) -> Response:
    """Create a topic."""
    queues = visit.field_number("queues", maximum=QUEUES_MAX)
    topic = await visit.admin.create_topic(visit.field("topic"), queue_count=queues)
    return visit.redirect(f"/topics/{path_segment(topic.name)}")


async def restore(visit: Visit) -> Response:
    """Restore a deleted topic with its messages and offsets."""
    topic_id = visit.field_number("topic_id", maximum=(1 << 64) - 1)
    topic = await visit.admin.undelete_topic(visit.field("topic"), topic_id=topic_id)
    return visit.redirect(f"/topics/{path_segment(topic.name)}")


PAGES = (
    Page("/topics", show),
    Page("/topics/create", create, is_action=True),
    Page("/topics/restore", restore, is_action=True),
)
