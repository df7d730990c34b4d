"""The list of topics, the creation of a topic, and the restoring of deleted topics."""

from starlette.responses import Response

from ortoo.client import DeletedTopic
from ortoo.console.cluster.partial import Answer, ask
from ortoo.console.web.names import name_before
from ortoo.console.web.rendering import path_segment, query_of
from ortoo.console.web.visit import Page, Visit

PAGE_TOPICS = 100
DELETED_SHOWN = 50
QUEUES_MAX = 4_096


async def show(visit: Visit) -> Response:
    """One page of the topics, with the numbers of their messages."""
    after, start = visit.query("after"), visit.query("from")
    # The name before the first name with this start, so that the topic `start` itself is on the page.
    found = await visit.admin.list_topics(after=after or name_before(start), limit=PAGE_TOPICS + 1)
    shown = found[:PAGE_TOPICS]
    following = {"after": shown[-1].name if len(found) > PAGE_TOPICS else ""}
    described = await ask(visit.admin.describe_topics([one.name for one in shown]))
    counts = {
        one.topic.name: (sum(queue.end_offset - queue.begin_offset for queue in one.queues), len(one.queues))
        for one in described.value or ()
    }
    deleted: Answer[list[DeletedTopic]] = Answer()
    if not after and not start:
        deleted = await ask(visit.admin.list_deleted_topics())
    partial = {one.topic.name: one.unreachable_enodes for one in described.value or ()}
    return visit.page(
        "topics.html",
        title="Topics",
        commands=(("topic", "list"),),
        topics=shown,
        counts=counts,
        described=described,
        unreachable=sorted({enode for enodes in partial.values() for enode in enodes}),
        partial=partial,
        deleted=deleted,
        deleted_topics=(deleted.value or [])[:DELETED_SHOWN],
        start=start,
        next_address=f"/topics{query_of(following)}" if len(found) > PAGE_TOPICS else "",
        is_first=not after and not start,
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
