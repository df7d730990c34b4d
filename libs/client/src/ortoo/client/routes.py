"""Where a topic's messages may go."""

from dataclasses import dataclass

from ortoo.client.connection import Connection
from ortoo.client.place import Queue
from ortoo.common.errors import NotFound
from ortoo.common.sealed_batch import crc32c
from ortoo.v1 import producer_pb2
from ortoo.v1.producer_pb2_grpc import ProducerServiceStub


@dataclass(frozen=True, slots=True)
class Route:
    """The queues of a topic, sorted by enode and id."""

    topic_id: int
    writable: tuple[Queue, ...]
    readable: tuple[Queue, ...]

    def queue_of_group(self, message_group: str) -> Queue:
        """The queue of a message group: the same at every producer while the writable queues stay the same."""
        return self.writable[crc32c(message_group.encode()) % len(self.writable)]


async def query_route(connection: Connection, topic: str) -> Route:
    """Ask for a topic's queues. Errors: NotFound, also when the topic takes no messages now."""
    request = producer_pb2.QueryRouteRequest(topic=topic)
    answer = await connection.call(ProducerServiceStub, "QueryRoute", request)
    route = Route(
        answer.topic.topic_id,
        tuple(sorted(Queue(q.topic, q.enode, q.queue_id) for q in answer.writable_queues)),
        tuple(sorted(Queue(q.topic, q.enode, q.queue_id) for q in answer.readable_queues)),
    )
    if not route.writable:
        raise NotFound(
            f"the topic {topic!r} has no queue that takes messages now: its enodes are away or it is read-only; "
            "`ortoo topic describe` shows which",
            field="topic",
        )
    return route
