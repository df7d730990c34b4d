"""A server reports when it is ready, translates errors, and drains before it stops."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from typing import Any

import grpc
import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from ortoo.common.errors import Conflict, Forbidden, Internal, Invalid, NotFound, OrtooError, Unavailable, Unsupported
from ortoo.common.errors.status import rpc_errors
from ortoo.common.grpc.channels import Channels
from ortoo.common.grpc.layers.layer import Layer, ServedCall
from ortoo.common.grpc.server import GrpcServer
from ortoo.common.process.clock import SystemClock
from ortoo.common.telemetry.call_metrics import CallMetrics
from ortoo.v1 import namesrv_pb2, namesrv_pb2_grpc
from tests.unit.common.grpc.new_garbage import new_garbage

pytestmark = pytest.mark.usefixtures("each_transport")


class Names(namesrv_pb2_grpc.NameServiceServicer):
    """Fails in chosen ways."""

    def __init__(self) -> None:
        self.watching = asyncio.Event()
        self.server: GrpcServer

    async def GetTopic(self, request: Any, context: Any) -> namesrv_pb2.GetTopicResponse:
        if request.name == "defect":
            raise ZeroDivisionError
        raise NotFound(f"no topic {request.name!r}; create it", field="name")

    async def WatchRoutes(self, request: Any, context: Any) -> AsyncIterator[namesrv_pb2.WatchRoutesResponse]:
        yield namesrv_pb2.WatchRoutesResponse(version=1)
        self.watching.set()
        await self.server.draining.wait()
        yield namesrv_pb2.WatchRoutesResponse(version=2)


NAME = "ortoo.v1.NameService"


def server_of(
    names: Names, address: str = "127.0.0.1:0", grace_s: float = 5, layers: Sequence[Layer] = ()
) -> GrpcServer:
    services = [(NAME, lambda server: namesrv_pb2_grpc.add_NameServiceServicer_to_server(names, server))]
    names.server = GrpcServer(address, services, grace_s=grace_s, layers=layers)
    return names.server


@pytest.mark.parametrize(
    ("symbol", "file"),
    [
        (NAME, "ortoo/v1/namesrv.proto"),
        (f"{NAME}.GetTopic", "ortoo/v1/namesrv.proto"),
        ("ortoo.v1.GetTopicRequest", "ortoo/v1/namesrv.proto"),
        (f"{NAME}.GetNothing", ""),
    ],
)
async def test_reflection_knows_services_methods_and_messages(symbol: str, file: str) -> None:
    """`grpcurl describe` asks for each of them; a name that does not exist is not found."""
    async with server_of(Names()) as server, Channels() as channels:
        stub = reflection_pb2_grpc.ServerReflectionStub(channels.channel_to(server.address))
        call = stub.ServerReflectionInfo(iter([reflection_pb2.ServerReflectionRequest(file_containing_symbol=symbol)]))
        [answer] = [one async for one in call]
    found = [FileDescriptorProto.FromString(one).name for one in answer.file_descriptor_response.file_descriptor_proto]
    assert found[:1] == [file][: bool(file)]
    assert (answer.error_response.error_code == grpc.StatusCode.NOT_FOUND.value[0]) == (not file)


async def test_errors_arrive_as_they_were_raised() -> None:
    """The client raises the handler's error with its kind, message and field; a defect becomes Internal."""
    async with server_of(Names()) as server, Channels() as channels:
        stub = namesrv_pb2_grpc.NameServiceStub(channels.channel_to(server.address))
        with pytest.raises(NotFound, match="create it") as caught, rpc_errors("name server"):
            await stub.GetTopic(namesrv_pb2.GetTopicRequest(name="t"))
        assert caught.value.field == "name"
        with pytest.raises(Internal, match="met a defect; the server's log has the details"), rpc_errors("name server"):
            await stub.GetTopic(namesrv_pb2.GetTopicRequest(name="defect"))
        with pytest.raises(Unsupported), rpc_errors("name server"):
            await stub.ListTopics(namesrv_pb2.ListTopicsRequest())


async def test_a_refused_call_leaves_nothing_to_the_garbage_collector() -> None:
    """Otherwise refused calls would make the collector stop a process with many sessions for 0.1 s at a time."""
    names = Names()
    server = GrpcServer(
        "127.0.0.1:0",
        [(NAME, lambda s: namesrv_pb2_grpc.add_NameServiceServicer_to_server(names, s))],
        outermost=[CallMetrics(SystemClock())],
    )
    async with server, grpc.aio.insecure_channel(server.address) as channel:
        stub = namesrv_pb2_grpc.NameServiceStub(channel)
        malformed: Any = channel.unary_unary(f"/{NAME}/GetTopic", request_serializer=bytes)
        with new_garbage() as collect:
            for _ in range(50):
                for call in (stub.GetTopic(namesrv_pb2.GetTopicRequest(name="t")), malformed(b"\xff")):
                    with pytest.raises(grpc.aio.AioRpcError):
                        await call
            assert collect() <= 8 * 100  # gRPC itself leaves 5 objects per call


async def test_bytes_that_are_no_request_are_invalid() -> None:
    """Garbage instead of a protobuf message is the caller's error, not a defect of the server."""
    async with server_of(Names()) as server, Channels() as channels:
        channel: Any = channels.channel_to(server.address)
        for call in (
            channel.unary_unary(f"/{NAME}/GetTopic")(b"\xff\xff\xff"),
            channel.unary_stream(f"/{NAME}/WatchRoutes")(b"\xff\xff\xff").read(),
        ):
            with pytest.raises(Invalid, match="are not a request of"), rpc_errors("name server"):
                await call


async def test_ready_is_told_by_the_health_service() -> None:
    """grpc.health.v1 says SERVING for the whole and for each service once the block is entered."""
    async with server_of(Names()) as server, Channels() as channels:
        health = health_pb2_grpc.HealthStub(channels.channel_to(server.address))
        for name in ("", NAME):
            answer = await health.Check(health_pb2.HealthCheckRequest(service=name))
            assert answer.status == health_pb2.HealthCheckResponse.SERVING
        watch = health.Watch(health_pb2.HealthCheckRequest(service=NAME))
        assert (await watch.read()).status == health_pb2.HealthCheckResponse.SERVING
        await server.set_serving(False)
        assert (await watch.read()).status == health_pb2.HealthCheckResponse.NOT_SERVING
        answer = await health.Check(health_pb2.HealthCheckRequest())
        assert answer.status == health_pb2.HealthCheckResponse.NOT_SERVING


async def test_those_who_watch_health_do_not_hold_up_a_stop() -> None:
    """A watcher gets NOT_SERVING and its stream ends, long before the grace period ends."""
    async with Channels() as channels, asyncio.timeout(60):
        async with server_of(Names(), grace_s=60) as server:
            watch = health_pb2_grpc.HealthStub(channels.channel_to(server.address)).Watch(
                health_pb2.HealthCheckRequest()
            )
            assert (await watch.read()).status == health_pb2.HealthCheckResponse.SERVING
        assert (await watch.read()).status == health_pb2.HealthCheckResponse.NOT_SERVING
        assert await watch.read() is grpc.aio.EOF


async def test_taken_port_is_a_named_conflict() -> None:
    """Two servers never share a port."""
    async with server_of(Names()) as server:
        with pytest.raises(Conflict, match="the port is taken"):
            async with server_of(Names(), server.address):
                pass


async def test_long_streams_end_well_at_the_stop() -> None:
    """A stream that watches `draining` sends its last answer before the server closes."""
    names = Names()
    async with Channels() as channels:
        async with server_of(names) as server:
            stub: Any = namesrv_pb2_grpc.NameServiceStub(channels.channel_to(server.address))
            call = stub.WatchRoutes(namesrv_pb2.WatchRoutesRequest())
            assert (await call.read()).version == 1
        assert (await call.read()).version == 2
        assert await call.read() is grpc.aio.EOF


@pytest.mark.parametrize(
    ("is_told_why", "error", "said"), [(False, Unavailable, "retry it"), (True, Forbidden, "the permission is gone")]
)
async def test_who_does_not_read_hears_of_the_end_of_its_call_as_it_reads_on(
    is_told_why: bool, error: type[OrtooError], said: str
) -> None:
    """A call whose handler is cancelled during a write still gets a status."""
    writing = asyncio.Event()
    small = namesrv_pb2.WatchRoutesResponse(version=1)
    large = namesrv_pb2.WatchRoutesResponse(deleted_topics=["t" * 6_000_000])
    ends: list[Callable[[], object]] = []

    class Writing(Names):
        async def WatchRoutes(self, request: Any, context: Any) -> AsyncIterator[namesrv_pb2.WatchRoutesResponse]:
            yield small
            writing.set()
            yield large

    class Ending(Layer):
        def enter(self, call: ServedCall) -> None:
            task = asyncio.current_task()
            assert task is not None
            ends.append(partial(call.make_terminator(), Forbidden(said)) if is_told_why else task.cancel)

    async with asyncio.timeout(60), server_of(Writing(), layers=[Ending()]) as server, Channels() as channels:
        call = namesrv_pb2_grpc.NameServiceStub(channels.channel_to(server.address)).WatchRoutes(
            namesrv_pb2.WatchRoutesRequest()
        )
        await writing.wait()
        for end in ends:
            end()
        assert [await call.read(), await call.read()] == [small, large]
        with pytest.raises(error, match=said), rpc_errors("name server"):
            await call.read()
