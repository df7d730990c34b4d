"""Requests that gRPC compressed are decompressed by the server, within the limit of a message; no others are."""

import asyncio
import gzip
import zlib

import grpc
import pytest

from ortoo.common.errors import Invalid
from ortoo.common.errors.status import rpc_errors
from ortoo.common.grpc.channels import MESSAGE_BYTES_MAX, Channels
from ortoo.common.grpc.limits.inflation import BEGINNING_BYTES, WINDOWS, Inflation, is_compressed
from ortoo.common.grpc.limits.request_shape import beginning_check
from ortoo.common.grpc.server import GrpcServer
from ortoo.common.process.clock import SystemClock
from ortoo.v1 import namesrv_pb2, namesrv_pb2_grpc
from tests.hostile.contract import METHODS
from tests.hostile.floods import EMPTY_ELEMENTS

DATA = b"\x0a\x03abc" * 10_000


async def inflate(data: bytes) -> bytes:
    """A decompressed request whose beginning is not checked."""
    return await Inflation().inflate(data, bytes)


@pytest.mark.parametrize("compress", [gzip.compress, zlib.compress])
@pytest.mark.parametrize("level", [0, 1, 6, 9])
async def test_compressed_requests_come_back(compress: object, level: int) -> None:
    """For both of gRPC's algorithms, at every level, with and without a rest after the beginning."""
    assert callable(compress)
    assert await inflate(compress(DATA, level)) == DATA
    assert await inflate(compress(DATA[:10], level)) == DATA[:10]
    assert is_compressed(compress(DATA, level))
    assert not is_compressed(DATA)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (gzip.compress(bytes(MESSAGE_BYTES_MAX + 1)), "when it is inflated"),
        (gzip.compress(DATA)[:-20], "is truncated"),
        (b"\x1f\x8b" + b"\0" * 50, "is damaged"),
    ],
    ids=["too large", "truncated", "damaged"],
)
async def test_what_is_damaged_or_too_large_is_refused(data: bytes, said: str) -> None:
    """A compression bomb is decompressed only up to the limit of a message."""
    with pytest.raises(Invalid, match=said):
        await inflate(data)
    assert len(await inflate(gzip.compress(bytes(MESSAGE_BYTES_MAX)))) == MESSAGE_BYTES_MAX


async def test_a_request_is_refused_by_its_beginning() -> None:
    """Four million elements are not decompressed before they are counted."""
    check = beginning_check("/ortoo.v1.NameService/AdoptTopics")
    with pytest.raises(Invalid, match=f"{BEGINNING_BYTES} bytes of the request have more than"):
        await Inflation().inflate(EMPTY_ELEMENTS, check)
    longer = gzip.compress(b"\x0a\x03abc" * 100_000)
    assert len(await Inflation().inflate(longer, check)) == 500_000


async def test_requests_are_decompressed_one_at_a_time() -> None:
    """The event loop does other work between two requests, also when many have come at once."""
    check, inflation, turns = beginning_check("/ortoo.v1.NameService/AdoptTopics"), Inflation(), 0
    loop = asyncio.get_running_loop()
    waiting = [loop.create_task(inflation.inflate(EMPTY_ELEMENTS, check)) for _ in range(20)]
    while not all(one.done() for one in waiting):
        turns += 1
        await SystemClock().sleep(0)
    assert turns >= len(waiting)
    assert all(isinstance(one.exception(), Invalid) for one in waiting)


def test_no_request_begins_as_compressed_data_do() -> None:
    """The first byte of a request is the key of a field, and no request's first byte looks like gzip or zlib."""
    numbers_as_key = {first[0] >> 3 for first in WINDOWS if first[0] & 7 == 0}
    for method in METHODS:
        plain = [field for field in method.input_type.fields if field.message_type is None]
        numbers = {field.number for field in plain if field.type not in (field.TYPE_STRING, field.TYPE_BYTES)}
        texts = {
            field.number for field in method.input_type.fields if field.type in (field.TYPE_STRING, field.TYPE_BYTES)
        }
        assert not numbers_as_key & (numbers - texts), method.full_name
    assert {first[0] & 7 for first in WINDOWS} == {0, 7}, "no field has wire type 7"


class Names(namesrv_pb2_grpc.NameServiceServicer):
    """Answers with the length of the name."""

    async def GetTopic(self, request: namesrv_pb2.GetTopicRequest, context: object) -> namesrv_pb2.GetTopicResponse:
        return namesrv_pb2.GetTopicResponse(topic={"name": str(len(request.name))})  # type: ignore[arg-type]


@pytest.mark.parametrize("compression", list(grpc.Compression))
@pytest.mark.usefixtures("each_transport")
async def test_clients_may_compress(compression: grpc.Compression) -> None:
    """The test works with all of gRPC's algorithms; nothing else changes for the handler."""
    services = [
        ("ortoo.v1.NameService", lambda server: namesrv_pb2_grpc.add_NameServiceServicer_to_server(Names(), server))
    ]
    async with GrpcServer("127.0.0.1:0", services) as server, Channels() as channels:
        stub = namesrv_pb2_grpc.NameServiceStub(channels.channel_to(server.address))
        request = namesrv_pb2.GetTopicRequest(name="a" * 10_000)
        with rpc_errors("name server"):
            answer = await stub.GetTopic(request, compression=compression)
        assert answer.topic.name == "10000"
