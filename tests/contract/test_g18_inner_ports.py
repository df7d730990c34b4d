"""G18: each method of each inner port is answered to the roles that the documented table lists, and to no others."""

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.descriptor_pool import Default
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from ortoo.common.grpc.inner.callers import CALLERS
from ortoo.v1 import enode_pb2, namesrv_pb2
from ortoo.verification.servers.cluster import open_cluster
from tests.integration.certificates import NAME, Authority, Certificate
from tests.integration.enode_replicas import leading, open_members
from tests.repo.tree import ROOT

PAGE = ROOT / "docs/operations/inner-ports.md"
ROLES = ("enode", "snode", "operator")
STRANGERS = {"client": ("client.example",), "shared name": (NAME,), "name server": (NAME, f"namesrv.{NAME}")}
"""Certificates of the cluster's authority that have no role."""
UNDECODABLE = b"\xff" * 11
LET_THROUGH_S = 4.0
"""A call that should be let through and still runs after this time was let through."""
PATIENCE_S = 120.0
"""Timeout of a call that should be refused; long, so that a slow machine does not fail the test."""
OWN = "ortoo.v1."


def methods_of(service: str) -> dict[str, MethodDescriptor]:
    """The methods of a service by its full name."""
    described = Default().FindServiceByName(service)
    return {f"{described.name}/{method.name}": method for method in described.methods}


def documented() -> dict[str, set[str]]:
    """The table of the documentation: method to roles."""
    found: dict[str, set[str]] = {}
    for service, methods, roles in re.findall(r"^\| `(\w+Service)` \| (.*) \| (.*) \|$", PAGE.read_text(), re.M):
        named = methods_of(OWN + service)
        names = (
            named if methods == "all" else {f"{service}/{name}": None for name in re.findall(r"`([A-Z]\w+)`", methods)}
        )
        assert found.keys().isdisjoint(names), service
        found |= {name: {*roles.split(", ")} for name in names}
    return found


async def served_at(channel: grpc.aio.Channel) -> dict[str, MethodDescriptor]:
    """The methods that a port serves, but for health and reflection, which are open."""
    asked = reflection_pb2.ServerReflectionRequest(list_services="*")
    call = reflection_pb2_grpc.ServerReflectionStub(channel).ServerReflectionInfo(iter([asked]))
    answer = await call.read()
    assert isinstance(answer, reflection_pb2.ServerReflectionResponse)
    names = [one.name for one in answer.list_services_response.service]
    assert {name for name in names if not name.startswith("grpc.")} == {n for n in names if n.startswith(OWN)}
    return {name: method for one in names if one.startswith(OWN) for name, method in methods_of(one).items()}


@contextlib.asynccontextmanager
async def inner_ports(folder: Path, authority: Authority) -> AsyncIterator[list[str]]:
    """The inner ports of a cluster: a name server, a single enode, and both ports of a leading replica."""
    signed = {role: authority.settings(await authority.sign(role)) for role in ("namesrv", "enode", "snode")}
    settings: dict[str, dict[str, Any]] = {role: dict(chosen) for role, chosen in signed.items()}
    async with (
        open_cluster(folder, settings=settings) as cluster,
        open_members(cluster, 1, name="enode-1", **signed["enode"]) as members,
    ):
        member = await leading(cluster, members)
        ports = ["namesrv-0", "enode-0"]
        yield [*map(cluster.address_of, ports), member.address, member.replica_address]


def reached(address: str, authority: Authority, of: Certificate) -> grpc.aio.Channel:
    """A channel to an inner port that shows a certificate."""
    files = (authority.ca_file, of.key_file, of.certificate_file)
    credentials = grpc.ssl_channel_credentials(*(file.read_bytes() for file in files))
    return grpc.aio.secure_channel(address, credentials, options=[("grpc.ssl_target_name_override", NAME)])


@pytest.fixture
async def authority(tmp_path: Path) -> Authority:
    """The certificate authority of the cluster, which also signs certificates of clients."""
    return await Authority.make(tmp_path / "authority")


async def refusal(channel: grpc.aio.Channel, method: MethodDescriptor, request: Message, timeout_s: float) -> str:
    """Call a method with this one request; the reason of a refusal, empty when it is let through."""
    streams = ("stream" if method.client_streaming else "unary", "stream" if method.server_streaming else "unary")
    path = f"/{method.containing_service.full_name}/{method.name}"
    write, read = type(request).SerializeToString, GetMessageClass(method.output_type).FromString
    make = getattr(channel, "_".join(streams))(path, request_serializer=write, response_deserializer=read)
    call = make(timeout=timeout_s) if method.client_streaming else make(request, timeout=timeout_s)
    try:
        if method.client_streaming:  # no request, because in gRPC one to a refused call would hide the status
            await call.done_writing()
        is_answered = await call.read() is not grpc.aio.EOF if method.server_streaming else True
        code = grpc.StatusCode.OK if is_answered and method.server_streaming else await call.code()
        return (await call.details() or "?") if code is grpc.StatusCode.PERMISSION_DENIED else ""
    except grpc.aio.AioRpcError as error:
        return (error.details() or "?") if error.code() is grpc.StatusCode.PERMISSION_DENIED else ""
    except asyncio.InvalidStateError:  # the call ended before the half close
        return (await call.details() or "?") if await call.code() is grpc.StatusCode.PERMISSION_DENIED else ""
    finally:
        call.cancel()


async def test_every_method_of_every_inner_port_has_a_row(authority: Authority, tmp_path: Path) -> None:
    """G18: both the code and the documented table have each method, and only served methods."""
    certificate = await authority.sign("snode")
    async with inner_ports(tmp_path, authority) as ports, asyncio.timeout(60):
        served: set[str] = set()
        for address in ports:
            async with reached(address, authority, certificate) as channel:
                served |= (await served_at(channel)).keys()
    assert served == CALLERS.keys()
    assert {name: {*map(str, callers.roles)} for name, callers in CALLERS.items()} == documented()


async def test_a_stranger_is_refused_before_its_request_is_decoded(authority: Authority, tmp_path: Path) -> None:
    """G18: a request that cannot be decoded is refused because of its caller, not because of its content."""
    certificate, answers = await authority.sign("client", *STRANGERS["client"]), dict[str, str]()
    async with inner_ports(tmp_path, authority) as ports, asyncio.timeout(PATIENCE_S):
        for address in ports:
            async with reached(address, authority, certificate) as channel:
                for name, method in (await served_at(channel)).items():
                    if method.client_streaming:  # their requests are decoded when the handler reads them
                        continue
                    make: Any = channel.unary_stream if method.server_streaming else channel.unary_unary
                    call: Any = make(f"/{method.containing_service.full_name}/{method.name}")(UNDECODABLE)
                    answers[name] = (await call.code()).name
    assert len(answers) > 50
    assert {name: code for name, code in answers.items() if code != "PERMISSION_DENIED"} == {}


async def test_every_port_answers_each_role_as_the_documented_table_says(authority: Authority, tmp_path: Path) -> None:
    """G18: every method of every port is called with the certificate of each role and of each unknown caller."""
    expected, wrong = documented(), list[str]()

    async def check(channel: grpc.aio.Channel, address: str, who: str, method: MethodDescriptor) -> None:
        name = f"{method.containing_service.name}/{method.name}"
        may = who in expected[name]
        request = GetMessageClass(method.input_type)()
        said = await refusal(channel, method, request, LET_THROUGH_S if may else PATIENCE_S)
        if bool(said) is may or (said and f"{name} is for the role" not in said):
            wrong.append(f"{name} of {address} by {who}: {said or 'let through'}")

    async with inner_ports(tmp_path, authority) as ports, asyncio.timeout(300):
        callers = {role: await authority.sign(f"a-{role}", f"{role}.{NAME}") for role in ROLES}
        for who, names in STRANGERS.items():
            callers[who] = await authority.sign(who.replace(" ", "-"), *names)
        for address in ports:
            for who, certificate in callers.items():
                async with reached(address, authority, certificate) as channel:
                    methods = (await served_at(channel)).values()
                    await asyncio.gather(*(check(channel, address, who, method) for method in methods))
    assert wrong == []


async def test_keys_of_handles_and_leases_are_for_one_role(authority: Authority, tmp_path: Path) -> None:
    """G18: the rows of the table for single fields are enforced."""
    routes = methods_of("ortoo.v1.NameService")["NameService/WatchRoutes"]
    leaves = methods_of("ortoo.v1.NameService")["NameService/Unregister"]
    keys = namesrv_pb2.WatchRoutesRequest(include_handle_keys=True)
    enode, snode = namesrv_pb2.UnregisterRequest(enode="e", epoch=1), namesrv_pb2.UnregisterRequest(snode="s")
    async with inner_ports(tmp_path, authority) as [name_server, *_], asyncio.timeout(60):
        callers = {role: await authority.sign(f"a-{role}", f"{role}.{NAME}") for role in ROLES}
        for method, request, role in ((routes, keys, "snode"), (leaves, enode, "enode"), (leaves, snode, "snode")):
            for who, certificate in callers.items():
                async with reached(name_server, authority, certificate) as channel:
                    said = await refusal(channel, method, request, PATIENCE_S)
                assert bool(said) is (who != role), (method.name, who, said)


@pytest.mark.usefixtures("each_transport")
async def test_requests_that_would_be_executed_are_refused_as_well(authority: Authority, tmp_path: Path) -> None:
    """G18: a commit of offsets is refused to callers of other roles, by each transport."""
    commits = methods_of("ortoo.v1.EnodeService")["EnodeService/CommitOffsets"]
    request = enode_pb2.CommitOffsetsRequest(group="g")
    async with inner_ports(tmp_path, authority) as [_, enode, *_], asyncio.timeout(60):
        for who, is_let_in in (("snode", True), ("client", False), ("enode", False)):
            certificate = await authority.sign(f"a-{who}", f"{who}.{NAME}")
            async with reached(enode, authority, certificate) as channel:
                said = await refusal(channel, commits, request, PATIENCE_S)
                assert (said == "") is is_let_in, (who, said)
