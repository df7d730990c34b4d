"""Routes and assignments of topics."""

from apache.rocketmq.v2.definition_pb2 import Endpoints
from apache.rocketmq.v2.service_pb2 import (
    QueryAssignmentRequest,
    QueryAssignmentResponse,
    QueryRouteRequest,
    QueryRouteResponse,
)
from ortoo.snode.cluster.watch import DirectoryWatch
from ortoo.snode.rocketmq.protocol.caller import Caller
from ortoo.snode.rocketmq.protocol.codes import ok
from ortoo.snode.rocketmq.protocol.names import group_name, topic_name
from ortoo.snode.rocketmq.routes.route import answered_endpoints, assignments, endpoints_of, route_queues
from ortoo.snode.topics.arrival import TopicSource


class Routing:
    """QueryRoute and QueryAssignment."""

    def __init__(self, watch: DirectoryWatch, sendable: TopicSource, advertised_address: str) -> None:
        """`advertised_address` is told to every client; empty = each client is told the way it came."""
        self._watch = watch
        self._sendable = sendable
        self._advertised = endpoints_of(advertised_address) if advertised_address else None
        self.own = Endpoints()
        """Where this snode listens; for clients that do not say how they came."""

    async def route(self, caller: Caller, request: QueryRouteRequest) -> QueryRouteResponse:
        """All queues of a topic; producers and consumers ask alike. Errors: Refused, NotFound."""
        topic = await self._sendable.topic(topic_name(request.topic))
        endpoints = answered_endpoints(request.endpoints, self._advertised, self.own)
        return QueryRouteResponse(status=ok(), message_queues=route_queues(topic, request.topic, endpoints))

    async def assign(self, caller: Caller, request: QueryAssignmentRequest) -> QueryAssignmentResponse:
        """What every member of a group receives from. Errors: Refused, NotFound."""
        group_name(request.group)
        topic = await self._watch.topic(topic_name(request.topic))
        endpoints = answered_endpoints(request.endpoints, self._advertised, self.own)
        return QueryAssignmentResponse(status=ok(), assignments=assignments(topic, request.topic, endpoints))
