"""The caller is authenticated before any work is done for the request: an unsigned request is not even decoded."""

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from apache.rocketmq.v2 import definition_pb2, service_pb2
from ortoo.verification.servers.cluster import open_cluster
from tests.hostile.surface import Method, methods_of
from tests.integration.guarded_cluster import guarded, signed

UNDECODABLE = b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"
ROCKETMQ = "/apache.rocketmq.v2.MessagingService/"
MANY = service_pb2.SendMessageRequest(messages=[definition_pb2.Message()] * 5_000).SerializeToString()
REFUSED = (definition_pb2.Code.UNAUTHORIZED, definition_pb2.Code.FORBIDDEN)


async def answer(channel: grpc.aio.Channel, method: Method, data: bytes, headers: Any = ()) -> tuple[str, str]:
    """Status name and details of a call; for RocketMQ's protocol the code in the answer."""

    async def one() -> AsyncIterator[bytes]:
        yield data

    call: Any = method.callable(channel)(one() if method.client_streams else data, metadata=headers, timeout=20)
    try:
        raw = await call.read() if method.server_streams else await call
    except grpc.aio.AioRpcError as error:
        return error.code().name, error.details() or ""
    with contextlib.suppress(grpc.aio.AioRpcError):
        call.cancel()
    if not method.path.startswith(ROCKETMQ) or raw is grpc.aio.EOF:
        return "OK", ""
    kind = service_pb2.DESCRIPTOR.services_by_name["MessagingService"].methods_by_name[method.path.rpartition("/")[2]]
    status = getattr(service_pb2, kind.output_type.name).FromString(raw).status
    return definition_pb2.Code.Name(status.code), status.message


async def refusals(address: str, data: bytes) -> dict[str, tuple[str, str]]:
    """The answer of each method of a process to an unsigned request."""
    async with grpc.aio.insecure_channel(address) as channel:
        methods = [one for one in await methods_of(channel) if not one.path.startswith("/grpc.")]
        return {method.path: await answer(channel, method, data) for method in methods}


@pytest.mark.parametrize("data", [UNDECODABLE, b"\x0a\x00" * 300_000], ids=["undecodable", "many elements"])
async def test_a_snode_knows_who_calls_before_it_decodes(tmp_path: Path, data: bytes) -> None:
    """G16: every method of both protocols refuses an unauthenticated client as such, not for its request."""
    async with guarded(tmp_path) as cluster:
        found = await refusals(cluster.address, data)
    assert len(found) > 80
    codes = {definition_pb2.Code.Name(code) for code in REFUSED} | {"PERMISSION_DENIED"}
    assert {path: said for path, said in found.items() if said[0] not in codes} == {}


async def test_inner_ports_know_who_calls_before_they_decode(tmp_path: Path) -> None:
    """G16: with a cluster token, every method of name server and enode."""
    token = tmp_path / "token"
    token.write_text("a token of the cluster")
    chosen = {role: {"cluster_token_file": str(token)} for role in ("namesrv", "enode", "snode")}
    async with open_cluster(tmp_path, settings=chosen) as cluster:
        addresses = [cluster.address_of(name) for name in ("namesrv-0", "enode-0")]
        found = {path: said for one in addresses for path, said in (await refusals(one, UNDECODABLE)).items()}
    assert len(found) > 50
    assert {path: said for path, said in found.items() if said[0] != "PERMISSION_DENIED"} == {}


async def test_rocketmq_clients_are_known_before_their_requests_are_decoded(tmp_path: Path) -> None:
    """G16: with required signatures, and no permissions in force."""
    async with open_cluster(tmp_path, settings={"snode": {"rocketmq_signatures_required": True}}) as cluster:
        found = await refusals(cluster.address, UNDECODABLE)
    codes = {definition_pb2.Code.Name(code) for code in REFUSED} | {"PERMISSION_DENIED"}
    mine = {path: said for path, said in found.items() if path.startswith(ROCKETMQ)}
    assert len(mine) > 10
    assert {path: said for path, said in mine.items() if said[0] not in codes} == {}


async def test_counts_come_before_rights(tmp_path: Path) -> None:
    """A user without any permission gets the error about a too long list: its elements were counted, not decoded."""
    async with guarded(tmp_path) as cluster, grpc.aio.insecure_channel(cluster.address) as channel:
        [send] = [one for one in await methods_of(channel) if one.path == f"{ROCKETMQ}SendMessage"]
        headers = (*signed(cluster, "nobody"), ("x-mq-client-id", "c"))
        code, details = await answer(channel, send, MANY, headers)
    assert (code, details.split(";")[0]) == ("BAD_REQUEST", f"{code}: messages: messages has more than 4096 elements")
