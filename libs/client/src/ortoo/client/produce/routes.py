"""Routes: the queues of a topic that accept messages."""

from dataclasses import dataclass

from ortoo.client import log_events
from ortoo.client.core.connection import Connection
from ortoo.client.core.queues import Queue
from ortoo.client.core.wire import queue_of
from ortoo.client.produce.producer_settings import ProducerSettings
from ortoo.common.errors import NotFound, Unavailable
from ortoo.common.groups.group_topics import group_of_topic
from ortoo.common.groups.queue_choice import level_of_priority, queue_of_group
from ortoo.common.logs.logger import get_logger
from ortoo.v1 import producer_pb2, topic_pb2
from ortoo.v1.producer_pb2_grpc import ProducerServiceStub

ROUTE_REFRESH_MIN_S = 1.0
"""Shortest time between two queries of a route after failed sends."""
OPENING_TIMEOUT_S = 10.0
"""Longest wait for enodes when a producer is opened. A program that starts should not seem to hang."""
_log = get_logger("producer")


@dataclass(frozen=True, slots=True)
class Route:
    """The queues that accept a topic's messages, in the operator's order or else by enode and id."""

    topic_id: int
    writable: tuple[Queue, ...]
    """Queues that accept messages now."""
    placed: tuple[Queue, ...] = ()
    """All queues, including those of enodes that are down."""
    has_priority_levels: bool = False
    """Whether each queue of an enode holds one priority, and the last one all larger priorities."""
    is_closed: bool = False
    """Whether the topic's permission forbids sends."""

    def queue_of_group(self, message_group: str) -> Queue:
        """The queue of a message group: equal at every producer, and independent of which enodes are alive."""
        return queue_of_group(message_group, self.placed or self.writable)

    def queue_of_priority(self, priority: int, enode: str) -> Queue:
        """The queue of a priority on `enode`, or on another enode if the topic has no queue on `enode` any more."""
        queues = self.placed or self.writable
        if all(queue.enode != enode for queue in queues):
            enode = self.writable[0].enode
        here = [queue for queue in queues if queue.enode == enode]
        return here[level_of_priority(priority, len(here))]


async def readable_queues(connection: Connection, topic: str) -> list[Queue]:
    """The queues of a topic that can be read, sorted. Errors: NotFound, Unavailable."""
    answer = await connection.call(ProducerServiceStub, "QueryRoute", producer_pb2.QueryRouteRequest(topic=topic))
    return sorted(map(queue_of, answer.readable_queues))


async def query_route(connection: Connection, topic: str) -> Route:
    """Query a topic's queues for sends.

    Errors: NotFound, also when the topic accepts no messages. Unavailable while its enodes are down.
    """
    return _checked(await query_placement(connection, topic), topic)


async def wait_for_route(connection: Connection, topic: str, settings: ProducerSettings) -> Route:
    """Query a topic's queues for sends; wait up to OPENING_TIMEOUT_S or `delivery_timeout_s` while its enodes are down.

    Errors: those of `query_route`. A cluster that does not answer is reported at once, because the address may be
    wrong.
    """
    deadline_s = connection.clock.monotonic_s() + min(OPENING_TIMEOUT_S, settings.delivery_timeout_s)
    attempt = 0
    while True:
        route = await query_placement(connection, topic)
        try:
            return _checked(route, topic)
        except Unavailable as error:
            if connection.clock.monotonic_s() >= deadline_s:
                raise
            connection.retry_log.emit(_log, log_events.ROUTE_LOOKUP_FAILED, error, topic=topic)
        await connection.back_off(attempt)
        attempt += 1


def _checked(route: Route, topic: str) -> Route:
    """The route if it accepts messages now. Errors: those of `query_route`."""
    if route.writable:
        return route
    if route.is_closed or not route.placed or group_of_topic(topic) is not None:
        raise NotFound(
            f"the topic {topic!r} has no queue that accepts messages, for example because it is read-only; "
            "see `ortoo topic describe`",
            field="topic",
        )
    raise Unavailable(
        f"no enode of the topic {topic!r} accepts messages now; see `ortoo topic describe`", field="topic"
    )


async def query_placement(connection: Connection, topic: str) -> Route:
    """Query a topic's queues for sends; perhaps none accepts messages now. Errors: NotFound."""
    request = producer_pb2.QueryRouteRequest(topic=topic, for_write=True)
    answer = await connection.call(ProducerServiceStub, "QueryRoute", request)
    return Route(
        answer.topic.topic_id,
        tuple(map(queue_of, answer.writable_queues)),
        tuple(_placed(answer.topic)),
        answer.topic.message_type == topic_pb2.MESSAGE_TYPE_PRIORITY,
        answer.topic.permission in (topic_pb2.PERMISSION_READ_ONLY, topic_pb2.PERMISSION_NONE),
    )


def _placed(topic: topic_pb2.Topic) -> list[Queue]:
    order = topic.publish_order.places
    if order:
        return [Queue(topic.name, place.enode, i) for place in order for i in range(place.queue_count)]
    return sorted(Queue(topic.name, p.enode, i) for p in topic.placements for i in range(p.write_queue_count))
