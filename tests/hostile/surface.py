"""The methods of a server, from gRPC's reflection alone."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.descriptor import Descriptor, MethodDescriptor
from google.protobuf.message import Message
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc


@dataclass(frozen=True, slots=True)
class Method:
    """One method of a server."""

    path: str
    """`/package.Service/Method`."""
    request: Descriptor
    client_streams: bool
    server_streams: bool

    def made(self, data: bytes = b"") -> Message:
        """A request of this method, read from `data`. Errors: DecodeError."""
        return message_factory.GetMessageClass(self.request).FromString(data)

    def callable(self, channel: grpc.aio.Channel) -> Any:
        """A callable for serialised requests that returns serialised answers."""
        kinds: dict[tuple[bool, bool], Any] = {
            (False, False): channel.unary_unary,
            (False, True): channel.unary_stream,
            (True, False): channel.stream_unary,
            (True, True): channel.stream_stream,
        }
        return kinds[self.client_streams, self.server_streams](
            self.path, request_serializer=bytes, response_deserializer=bytes
        )


async def methods_of(channel: grpc.aio.Channel) -> Sequence[Method]:
    """Every method of the server behind `channel`, by path. Errors: AioRpcError where there is no reflection."""
    pool, asked = descriptor_pool.DescriptorPool(), set[str]()
    stub = reflection_pb2_grpc.ServerReflectionStub(channel)

    async def files(**question: str) -> list[descriptor_pb2.FileDescriptorProto]:
        request = reflection_pb2.ServerReflectionRequest(**question)

        async def one() -> AsyncIterator[reflection_pb2.ServerReflectionRequest]:
            yield request

        async for answer in stub.ServerReflectionInfo(one()):
            raw = answer.file_descriptor_response.file_descriptor_proto
            return [descriptor_pb2.FileDescriptorProto.FromString(data) for data in raw]
        return []

    async def learn(file: descriptor_pb2.FileDescriptorProto) -> None:
        if file.name in asked:
            return
        asked.add(file.name)
        for needed in file.dependency:
            for other in await files(file_by_filename=needed):
                await learn(other)
        pool.Add(file)

    async def services() -> AsyncIterator[str]:
        yield ""

    names: list[str] = []
    listed = (reflection_pb2.ServerReflectionRequest(list_services=name) async for name in services())
    async for answer in stub.ServerReflectionInfo(listed):
        names = sorted(service.name for service in answer.list_services_response.service)
    for name in names:
        for file in await files(file_containing_symbol=name):
            await learn(file)
    found: list[MethodDescriptor] = [m for name in names for m in pool.FindServiceByName(name).methods]
    return [
        Method(f"/{m.containing_service.full_name}/{m.name}", m.input_type, m.client_streaming, m.server_streaming)
        for m in found
    ]
