"""Routes and assignments for clients. The address of every broker is the one by which the client reached this snode."""

import ipaddress
from collections.abc import Iterable, Sequence

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
from ortoo.snode.cluster import routes
from ortoo.snode.cluster.routes import Placement, Topic
from ortoo.snode.cluster.watch import DirectoryWatch
from ortoo.snode.rocketmq.protocol.caller import Caller
from ortoo.snode.rocketmq.protocol.codes import Refused, ok
from ortoo.snode.rocketmq.protocol.names import group_name, topic_name
from ortoo.snode.topics.creation import SendableTopics

ANY_QUEUE = -1
"""The queue id of an assignment that means all queues of a broker."""
MIXED = (MessageType.NORMAL, MessageType.FIFO, MessageType.DELAY, MessageType.TRANSACTION, MessageType.PRIORITY)
"""The types that a topic without a type accepts. Unspecified is not among them: the Java client cannot read it."""
ACCEPTED = {kind: (MessageType.Value(kind.name),) for kind in routes.MessageType if kind} | {
    routes.MessageType.UNSPECIFIED: MIXED
}
"""The types that a topic of each type accepts."""
JAVA_WITH_PRIORITIES = (5, 2, 0)
"""The first Java client with priorities; earlier ones do not start when a route has that type."""


class Routing:
    """QueryRoute and QueryAssignment."""

    def __init__(self, watch: DirectoryWatch, sendable: SendableTopics, advertised_address: str) -> None:
        """`advertised_address` is sent to every client; empty = each client gets the address by which it came."""
        self._watch = watch
        self._sendable = sendable
        self._advertised = endpoints_of(advertised_address) if advertised_address else None
        self.own = Endpoints()
        """The address of this snode, for clients that do not send the address by which they came."""

    async def route(self, caller: Caller, request: pb.QueryRouteRequest) -> pb.QueryRouteResponse:
        """All queues of a topic, for producers and consumers. Errors: Refused, NotFound."""
        topic = await self._sendable.topic(topic_name(request.topic))
        endpoints = answered_endpoints(request.endpoints, self._advertised, self.own)
        queues = route_queues(topic, request.topic, endpoints, accepted_by(topic, caller))
        return pb.QueryRouteResponse(status=ok(), message_queues=queues)

    async def assign(self, caller: Caller, request: pb.QueryAssignmentRequest) -> pb.QueryAssignmentResponse:
        """The assignment of every member of a group. Errors: Refused, NotFound."""
        group_name(request.group)
        topic = await self._watch.topic(topic_name(request.topic))
        endpoints = answered_endpoints(request.endpoints, self._advertised, self.own)
        return pb.QueryAssignmentResponse(status=ok(), assignments=assignments(topic, request.topic, endpoints))


def endpoints_of(address: str) -> Endpoints:
    """host:port as endpoints; with a scheme, without which clients cannot connect."""
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    return Endpoints(scheme=_scheme(host), addresses=[Address(host=host, port=int(port))])


def answered_endpoints(asked: Endpoints, advertised: Endpoints | None, own: Endpoints) -> Endpoints:
    """The address of the brokers for a client.

    An operator's address comes first. Otherwise it is the address by which the client came, which works also behind
    address translation. The snode's own address is the last resort.
    """
    if advertised is not None:
        return advertised
    usable = asked.scheme in (AddressScheme.IPv4, AddressScheme.IPv6, AddressScheme.DOMAIN_NAME) and asked.addresses
    if not usable or (asked.scheme == AddressScheme.DOMAIN_NAME and len(asked.addresses) > 1):
        return own
    return asked


def accepted_by(topic: Topic, caller: Caller) -> Sequence[int]:
    """The message types of a topic for a client, without those that the client does not know."""
    accepted = ACCEPTED[topic.message_type]
    if accepted is not MIXED or caller.language != "JAVA":
        return accepted
    version = tuple(int(part) for part in caller.client_version.partition("-")[0].split(".") if part.isdecimal())
    return MIXED if version >= JAVA_WITH_PRIORITIES else [kind for kind in MIXED if kind != MessageType.PRIORITY]


def route_queues(
    topic: Topic, resource: Resource, endpoints: Endpoints, accepted: Sequence[int] = MIXED
) -> list[MessageQueue]:
    """All queues of a topic, those for producers in their order. Errors: Refused with FORBIDDEN if there is none."""
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
        raise Refused(Code.FORBIDDEN, f"topic {topic.name} is {topic.permission.name}: it has no queue to use")
    return queues


def assignments(topic: Topic, resource: Resource, endpoints: Endpoints) -> list[Assignment]:
    """The assignment of a group member: all queues of each broker. Errors: Refused with FORBIDDEN."""
    brokers = [
        Broker(name=placement.enode, id=0, endpoints=endpoints)
        for placement in sorted(topic.placements, key=lambda p: p.enode)
        if topic.readable and placement.read_queue_count
    ]
    if not brokers:
        raise Refused(Code.FORBIDDEN, f"topic {topic.name} is {topic.permission.name}: it has no readable queue")
    queues = [MessageQueue(topic=resource, id=ANY_QUEUE, permission=Permission.READ, broker=one) for one in brokers]
    return [Assignment(message_queue=one) for one in queues]


def _scheme(host: str) -> AddressScheme.ValueType:
    try:
        version = ipaddress.ip_address(host).version
    except ValueError:
        return AddressScheme.DOMAIN_NAME
    return AddressScheme.IPv4 if version == 4 else AddressScheme.IPv6


def _permissions(topic: Topic, placement: Placement) -> Iterable[tuple[int, Permission.ValueType]]:
    """Ids from 0 with their permissions. Read-write queues come first: a client insists on writing to queue 0."""
    read = placement.read_queue_count if topic.readable else 0
    given = {place.enode: place.queue_count for place in topic.publish_order}
    write = given.get(placement.enode, 0) if given else placement.write_queue_count
    write = write if topic.writable else 0
    for queue_id in range(max(read, write)):
        if queue_id < min(read, write):
            yield queue_id, Permission.READ_WRITE
        else:
            yield queue_id, Permission.READ if read > write else Permission.WRITE
