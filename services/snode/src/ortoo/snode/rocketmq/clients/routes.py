"""Routes and assignments for clients. Every broker has the address at which the client reached this snode."""

import ipaddress
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from apache.rocketmq.v2 import service_pb2 as pb
from apache.rocketmq.v2.definition_pb2 import (
    Address,
    AddressScheme,
    Assignment,
    Broker,
    Code,
    Endpoints,
    MessageQueue,
    MessageType,
    Permission,
    Resource,
)
from ortoo.common.directory import topic as stored
from ortoo.common.directory.topic import Placement
from ortoo.common.grpc.layers.arrival import RepeatCaller
from ortoo.common.grpc.layers.repeats import Repeatable
from ortoo.snode.cluster.routes import Topic
from ortoo.snode.cluster.watch import DirectoryWatch
from ortoo.snode.rocketmq.protocol.caller import LANGUAGE, VERSION, Caller, is_client_id
from ortoo.snode.rocketmq.protocol.codes import GrpcProxyError, ok_status
from ortoo.snode.rocketmq.protocol.names import group_name, topic_name
from ortoo.snode.topics.creation import ProducerTopics

ANY_QUEUE = -1
"""The queue id of an assignment that means all queues of a broker."""
MIXED_TYPES = (MessageType.NORMAL, MessageType.FIFO, MessageType.DELAY, MessageType.TRANSACTION, MessageType.PRIORITY)
"""The types that a topic without a type accepts. UNSPECIFIED is left out, because the Java client cannot read it."""
ACCEPTED_TYPES = {kind: (MessageType.Value(kind.name),) for kind in stored.MessageType if kind} | {
    stored.MessageType.UNSPECIFIED: MIXED_TYPES
}
"""The types that a topic of each type accepts."""
JAVA_PRIORITY_VERSION = (5, 2, 0)
"""The first Java client with priorities; earlier clients do not start when a route has that type."""


class RouteActivity:
    """The calls QueryRoute and QueryAssignment."""

    def __init__(self, watch: DirectoryWatch, producer_topics: ProducerTopics, advertised_address: str) -> None:
        """`advertised_address` is sent to every client; empty = each client gets the address to which it connected."""
        self._watch = watch
        self._producer_topics = producer_topics
        self._advertised = endpoints_of(advertised_address) if advertised_address else None
        self.own_endpoints = Endpoints()
        """The address of this snode, for clients that do not send the address to which they connected."""

    async def query_route(self, caller: Caller, request: pb.QueryRouteRequest) -> pb.QueryRouteResponse:
        """All queues of a topic, for producers and consumers. Errors: GrpcProxyError, NotFound."""
        topic = await self._producer_topics.find_or_create(topic_name(request.topic))
        return self._route(caller, request, topic)

    def start_query_route(
        self, caller: Caller, request: pb.QueryRouteRequest, done: Callable[[Repeatable | Exception], None]
    ) -> bool:
        """Answer at once; False if this snode does not know the topic. Errors: GrpcProxyError, Invalid."""
        topic, own = self._watch.known_topic(topic_name(request.topic)), self.own_endpoints
        if topic is None:
            return False

        def holds(other: RepeatCaller) -> bool:
            kind = other.headers.get(LANGUAGE, ""), other.headers.get(VERSION, "")
            return kind == caller[1:3] and self._is_same(topic, own, other)

        done(Repeatable(self._route(caller, request, topic), holds))
        return True

    def _route(self, caller: Caller, request: pb.QueryRouteRequest, topic: Topic) -> pb.QueryRouteResponse:
        endpoints = choose_endpoints(request.endpoints, self._advertised, self.own_endpoints)
        queues = route_queues(topic, request.topic, endpoints, accepted_types(topic, caller))
        return pb.QueryRouteResponse(status=ok_status(), message_queues=queues)

    async def query_assignment(self, caller: Caller, request: pb.QueryAssignmentRequest) -> pb.QueryAssignmentResponse:
        """The queues for a member of a group; all members get the same queues. Errors: GrpcProxyError, NotFound."""
        group_name(request.group)
        return self._assignment(request, await self._watch.topic(topic_name(request.topic)))

    def start_query_assignment(
        self, _: Caller, request: pb.QueryAssignmentRequest, done: Callable[[Repeatable | Exception], None]
    ) -> bool:
        """Answer at once; False if this snode does not know the topic. Errors: GrpcProxyError, Invalid."""
        group_name(request.group)
        topic, own = self._watch.known_topic(topic_name(request.topic)), self.own_endpoints
        if topic is None:
            return False
        done(Repeatable(self._assignment(request, topic), partial(self._is_same, topic, own)))
        return True

    def _assignment(self, request: pb.QueryAssignmentRequest, topic: Topic) -> pb.QueryAssignmentResponse:
        endpoints = choose_endpoints(request.endpoints, self._advertised, self.own_endpoints)
        return pb.QueryAssignmentResponse(status=ok_status(), assignments=assignments(topic, request.topic, endpoints))

    def _is_same(self, topic: Topic, own: Endpoints, caller: RepeatCaller) -> bool:
        """Whether an answer about a topic still holds, for this caller."""
        is_known = self._watch.known_topic(topic.name) is topic and self.own_endpoints is own
        return is_known and is_client_id(caller.headers.get("x-mq-client-id", ""))


def endpoints_of(address: str) -> Endpoints:
    """Convert host:port to endpoints, with the address scheme that clients require."""
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    return Endpoints(scheme=_scheme(host), addresses=[Address(host=host, port=int(port))])


def choose_endpoints(requested: Endpoints, advertised: Endpoints | None, own: Endpoints) -> Endpoints:
    """The endpoints of the brokers in a route for a client.

    They are those that the operator `advertised`, or else those `requested`: the address to which the client connected,
    which also works behind address translation. The last resort are the snode's `own` endpoints.
    """
    if advertised is not None:
        return advertised
    usable = (
        requested.scheme in (AddressScheme.IPv4, AddressScheme.IPv6, AddressScheme.DOMAIN_NAME) and requested.addresses
    )
    if not usable or (requested.scheme == AddressScheme.DOMAIN_NAME and len(requested.addresses) > 1):
        return own
    return requested


def accepted_types(topic: Topic, caller: Caller) -> Sequence[int]:
    """The message types that a topic accepts, without those that the client does not know."""
    accepted = ACCEPTED_TYPES[topic.message_type]
    if accepted is not MIXED_TYPES or caller.language != "JAVA":
        return accepted
    version = tuple(int(part) for part in caller.client_version.partition("-")[0].split(".") if part.isdecimal())
    return (
        MIXED_TYPES
        if version >= JAVA_PRIORITY_VERSION
        else [kind for kind in MIXED_TYPES if kind != MessageType.PRIORITY]
    )


def route_queues(
    topic: Topic, resource: Resource, endpoints: Endpoints, accepted: Sequence[int] = MIXED_TYPES
) -> list[MessageQueue]:
    """All queues of a topic, in publish order. Errors: GrpcProxyError with FORBIDDEN if there are no queues."""
    rank = {place.enode: number for number, place in enumerate(topic.publish_order)}
    queues = [
        MessageQueue(
            topic=resource,
            id=queue_id,
            permission=permission,
            broker=Broker(name=placement.enode, id=0, endpoints=endpoints),
            accept_message_types=accepted,  # type: ignore[arg-type]
        )
        for placement in sorted(topic.placements, key=lambda p: (rank.get(p.enode, len(rank)), p.enode))
        for queue_id, permission in _permissions(topic, placement)
    ]
    if not queues:
        raise GrpcProxyError(Code.FORBIDDEN, f"topic {topic.name} is {topic.permission.name}: it has no usable queue")
    return queues


def assignments(topic: Topic, resource: Resource, endpoints: Endpoints) -> list[Assignment]:
    """The assignment of a group member: all readable queues of a topic. Errors: GrpcProxyError with FORBIDDEN."""
    brokers = [
        Broker(name=placement.enode, id=0, endpoints=endpoints)
        for placement in sorted(topic.placements, key=lambda p: p.enode)
        if topic.readable and placement.read_queue_count
    ]
    if not brokers:
        raise GrpcProxyError(Code.FORBIDDEN, f"topic {topic.name} is {topic.permission.name}: it has no readable queue")
    queues = [MessageQueue(topic=resource, id=ANY_QUEUE, permission=Permission.READ, broker=one) for one in brokers]
    return [Assignment(message_queue=one) for one in queues]


def _scheme(host: str) -> AddressScheme.ValueType:
    try:
        version = ipaddress.ip_address(host).version
    except ValueError:
        return AddressScheme.DOMAIN_NAME
    return AddressScheme.IPv4 if version == 4 else AddressScheme.IPv6


def _permissions(topic: Topic, placement: Placement) -> Iterable[tuple[int, Permission.ValueType]]:
    """Queue ids from 0 with their permissions. Read-write queues come first, because a client writes to queue 0."""
    read = placement.read_queue_count if topic.readable else 0
    publish_counts = {place.enode: place.queue_count for place in topic.publish_order}
    write = publish_counts.get(placement.enode, 0) if publish_counts else placement.write_queue_count
    write = write if topic.writable and not topic.owner_kind else 0
    for queue_id in range(max(read, write)):
        if queue_id < min(read, write):
            yield queue_id, Permission.READ_WRITE
        else:
            yield queue_id, Permission.READ if read > write else Permission.WRITE
