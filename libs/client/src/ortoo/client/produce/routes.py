"""Where a topic's messages may go."""

from dataclasses import dataclass

from ortoo.client.core.connection import Connection
from ortoo.client.core.place import Queue
from ortoo.client.core.wire import queue_of
from ortoo.common.errors import NotFound
from ortoo.common.groups.queue_choice import level_of_priority, queue_of_group
from ortoo.v1 import producer_pb2, topic_pb2
from ortoo.v1.producer_pb2_grpc import ProducerServiceStub


@dataclass(frozen=True, slots=True)
class Route:
    """The queues that take a topic's messages, in the order that an operator gave them, else by enode and id."""

    topic_id: int
    writable: tuple[Queue, ...]
    """Those that take messages now."""
    placed: tuple[Queue, ...] = ()
    """All that take messages when their enode is there."""
    has_levels: bool = False
    """Whether each queue of an enode is for one priority, the last one for all larger ones."""

    def queue_of_group(self, message_group: str) -> Queue:
        """The queue of a message group: the same at every producer, whichever enodes are away."""
        return queue_of_group(message_group, self.placed or self.writable)

    def queue_of_priority(self, priority: int, enode: str) -> Queue:
        """The queue for a priority on an enode, or on another one if the topic has left that."""
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
    """Ask for a topic's queues, to send. Errors: NotFound, also when the topic takes no messages now."""
    request = producer_pb2.QueryRouteRequest(topic=topic, to_send=True)
    answer = await connection.call(ProducerServiceStub, "QueryRoute", request)
    route = Route(
        answer.topic.topic_id,
        tuple(map(queue_of, answer.writable_queues)),
        tuple(_placed(answer.topic)),
        answer.topic.message_type == topic_pb2.MESSAGE_TYPE_PRIORITY,
    )
    if not route.writable:
        raise NotFound(
            f"the topic {topic!r} has no queue that takes messages now: its enodes are away or it is read-only; "
            "`ortoo topic describe` shows which",
            field="topic",
        )
    return route


def _placed(topic: topic_pb2.Topic) -> list[Queue]:
    order = topic.publish_order.places
    if order:
        return [Queue(topic.name, place.enode, i) for place in order for i in range(place.queue_count)]
    return sorted(Queue(topic.name, p.enode, i) for p in topic.placements for i in range(p.write_queue_count))
