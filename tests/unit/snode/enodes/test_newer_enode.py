"""Answers of a newer enode and news of a newer name server: unknown enum values never raise."""

import asyncio
from typing import Any

from ortoo.common.directory.topic import MessageType, Permission
from ortoo.common.groups.retry_policy import RetryKind
from ortoo.common.grpc.channels import Channels
from ortoo.common.grpc.server import GrpcServer
from ortoo.common.process.background import Background
from ortoo.common.process.clock import SystemClock
from ortoo.snode.cluster.routes import DeliveryMode, EnodeReplicaState
from ortoo.snode.cluster.wire import decode_update
from ortoo.snode.enodes.grpc_links import GrpcLinks
from ortoo.snode.enodes.link import AppendedBatch, FlushMode
from ortoo.snode.enodes.wire.append_wire import decode_append_response
from ortoo.v1 import enode_delivery_modes_pb2, enode_pb2, namesrv_pb2, topic_pb2
from ortoo.v1.enode_pb2_grpc import EnodeServiceServicer, add_EnodeServiceServicer_to_server

UNKNOWN: Any = 77


class NewerEnode(EnodeServiceServicer):
    """Answers with delivery modes of a newer version."""

    async def SetStoredMode(self, request: Any, context: Any) -> enode_delivery_modes_pb2.SetStoredModeResponse:
        """The previous mode is unknown to the snode."""
        return enode_delivery_modes_pb2.SetStoredModeResponse(previous=UNKNOWN)

    async def QueryModes(self, request: Any, context: Any) -> enode_delivery_modes_pb2.QueryModesResponse:
        """One known and one unknown mode."""
        stored = enode_delivery_modes_pb2.StoredMode
        known = stored(topic_id=1, mode=topic_pb2.DELIVERY_MODE_POP)
        return enode_delivery_modes_pb2.QueryModesResponse(modes=[known, stored(topic_id=2, mode=UNKNOWN)])


async def test_an_unknown_delivery_mode_is_kept_as_a_number() -> None:
    """Operators see that the mode is unknown, instead of another mode or an error."""
    async with (
        asyncio.timeout(60),
        GrpcServer(
            "127.0.0.1:0",
            [("ortoo.v1.EnodeService", lambda server: add_EnodeServiceServicer_to_server(NewerEnode(), server))],
        ) as server,
        Channels() as channels,
        Background("test") as background,
        GrpcLinks(
            channels=channels,
            background=background,
            clock=SystemClock(),
            timeout_s=10.0,
            in_flight_bytes_max=1 << 20,
        ) as links,
    ):
        link = links.to("e", server.address, 1)
        assert await link.query_modes("g") == [(1, DeliveryMode.POP), (2, 77)]
        assert await link.set_mode(2, "g", DeliveryMode.POP, force=False) == 77


def test_an_unknown_flush_mode_of_an_answer_claims_the_least() -> None:
    """The batch is acknowledged, and the answer does not claim that it is on disk."""
    answer = enode_pb2.AppendResponse(first_offset=3, stored_at_ms=5, flush_mode=UNKNOWN)
    assert decode_append_response(answer) == AppendedBatch(3, 5, FlushMode.ASYNC)


def test_unknown_values_in_routes_are_mapped() -> None:
    """Larger and negative numbers, since each would end the watch of the routes."""
    numbers: tuple[Any, ...] = (UNKNOWN, -1)
    for number in numbers:
        update = decode_update(
            namesrv_pb2.WatchRoutesResponse(
                topics=[topic_pb2.Topic(name="t", permission=number, message_type=number)],
                groups=[topic_pb2.Group(name="g", retry=topic_pb2.RetryPolicy(kind=number))],
                enodes=[topic_pb2.Enode(name="e", replicas=[topic_pb2.EnodeReplica(number=1, state=number)])],
            )
        )
        [topic], [group], [enode] = update.topics, update.groups, update.enodes
        assert (topic.permission, topic.message_type) == (Permission.READ_WRITE, MessageType.UNSPECIFIED)
        assert group.retry.kind is RetryKind.CLASSIC
        assert enode.replicas[0].state is EnodeReplicaState.UNSPECIFIED
