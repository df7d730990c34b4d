"""The list of topics, and the creation of a topic."""

from starlette.responses import Response

from ortoo.console.cluster.partial import ask
from ortoo.console.web.names import name_before
from ortoo.console.web.rendering import path_segment, query_of
from ortoo.console.web.visit import Page, Visit

PAGE_TOPICS = 100
QUEUES_MAX = 4_096


async def show(visit: Visit) -> Response:
    """One page of the topics, with the numbers of their messages."""
    after, start = visit.query("after"), visit.query("from")
    # The name before the first name with this start, so that the topic `start` itself is on the page.
    found = await visit.admin.list_topics_page(after or name_before(start), limit=PAGE_TOPICS)
    described = await ask(visit.admin.describe_topics([one.name for one in found.topics]))
    counts = {
        one.topic.name: (sum(queue.end_offset - queue.begin_offset for queue in one.queues), len(one.queues))
        for one in described.value or ()
    }
    partial = {one.topic.name: one.unreachable_enodes for one in described.value or ()}
    return visit.page(
        "topics.html",
        title="Topics",
        commands=(("topic", "list"),),
        topics=found.topics,
        counts=counts,
        described=described,
        unreachable=sorted({enode for enodes in partial.values() for enode in enodes}),
        partial=partial,
        start=start,
        next_address=f"/topics{query_of({'after': found.next_after})}" if found.next_after else "",
        is_first=not after and not start,
    )


async def create(visit: Visit) -> Response:
    """Create a topic."""
    queues = visit.field_number("queues", maximum=QUEUES_MAX)
    topic = await visit.admin.create_topic(visit.field("topic"), queue_count=queues)
    return visit.redirect(f"/topics/{path_segment(topic.name)}")


PAGES = (Page("/topics", show), Page("/topics/create", create, is_action=True))
