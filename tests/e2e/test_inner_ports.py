"""Real processes with mutual TLS: each role's certificate gives the access that the role needs, a client's none."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import grpc
import pytest

from ortoo.client import ConsumerSettings, connect
from ortoo.common.process.clock import SystemClock
from ortoo.v1 import enode_pb2, enode_replicas_pb2, namesrv_pb2, replication_pb2
from ortoo.v1.enode_pb2_grpc import EnodeServiceStub
from ortoo.v1.enode_replicas_pb2_grpc import EnodeReplicasServiceStub
from ortoo.v1.namesrv_pb2_grpc import NameServiceStub
from ortoo.v1.replication_pb2_grpc import ReplicationServiceStub
from ortoo.verification.servers.ports import free_ports
from ortoo.verification.servers.processes import DidNotStart, RoleProcess
from tests.integration.certificates import NAME, Authority, Certificate

ROLES = ("namesrv", "enode", "snode")
PUT = namesrv_pb2.PutUserRequest(user=namesrv_pb2.User(access_key="root"), secret_key="s3cret")


@pytest.fixture
async def authority(tmp_path: Path) -> Authority:
    """The certificate authority of the cluster, which signs certificates of clients as well."""
    return await Authority.make(tmp_path / "authority")


@contextlib.asynccontextmanager
async def processes(
    folder: Path, authority: Authority, certificates: Mapping[str, Certificate], **inner: object
) -> AsyncIterator[dict[str, RoleProcess]]:
    """A name server, an enode with a single replica, and a snode; `inner` are settings of the first two."""
    ports = free_ports(7)
    found: dict[str, RoleProcess] = {}
    for at, role in enumerate(ROLES):
        chosen = authority.settings(certificates[role], f"127.0.0.1:{ports[3 + at]}")
        environ: dict[str, object] = {"LISTEN_ADDRESS": f"127.0.0.1:{ports[at]}"}
        environ |= {name.upper(): value for name, value in chosen.items()}
        if role != "namesrv":
            environ |= {"NAME": f"{role}-0", "NAMESRV_ADDRESS": f"127.0.0.1:{ports[3]}"}
        if role == "enode":
            member = f"127.0.0.1:{ports[6]}"
            environ |= {"MEMBER": 1, "MEMBERS": 1, "REPLICA_LISTEN_ADDRESS": member, "REPLICA_ADDRESSES": member}
        if role != "snode":
            environ |= inner
        found[role] = RoleProcess(role, folder / f"{role}-0", environ)
    try:
        yield found
    finally:
        for process in reversed(found.values()):
            await process.kill()


def inner_address(process: RoleProcess, setting: str = "TLS_CLUSTER_LISTEN_ADDRESS") -> str:
    """An inner port of a process."""
    return str(process.environ[setting])


def reached(address: str, authority: Authority, of: Certificate) -> grpc.aio.Channel:
    """A channel that shows a certificate."""
    files = (authority.ca_file, of.key_file, of.certificate_file)
    credentials = grpc.ssl_channel_credentials(*(file.read_bytes() for file in files))
    return grpc.aio.secure_channel(address, credentials, options=[("grpc.ssl_target_name_override", NAME)])


async def works(snode: RoleProcess, topic: str) -> None:
    """A message passes through all roles, once they have found each other."""
    address = str(snode.environ["LISTEN_ADDRESS"])
    async with connect(address) as mq, asyncio.timeout(120):
        while not any(one.alive for one in (await mq.admin.describe_cluster()).enodes):
            await SystemClock().sleep(0.05)
        await mq.admin.ensure_topic(topic, queue_count=1)
        async with mq.producer(topic) as producer:
            await producer.send(b"x")
        async with mq.consumer("g", topic, ConsumerSettings(from_beginning=True)) as consumer:
            async for message in consumer:
                message.ack()
                break


async def refused(call: Any, setting: str) -> None:
    """A call that must be refused, naming the caller's certificate, the expected ones and the setting."""
    with pytest.raises(grpc.aio.AioRpcError) as error:
        await (call.read() if hasattr(call, "read") else call)
    assert error.value.code() is grpc.StatusCode.PERMISSION_DENIED
    for said in ("client.example", NAME, setting):
        assert said in (error.value.details() or "")


async def test_a_clients_certificate_opens_no_inner_port(authority: Authority, tmp_path: Path) -> None:
    """Signed by the cluster's own authority: no access to secrets, keys, messages, or the replication of a log."""
    certificates = {role: await authority.sign(role) for role in ROLES}
    client = await authority.sign("client", "client.example")
    operator = await authority.sign("operator", f"operator.{NAME}")
    async with processes(tmp_path, authority, certificates) as running:
        for process in running.values():
            await process.start()
        await works(running["snode"], "t")
        name_server, enode = (inner_address(running[role]) for role in ("namesrv", "enode"))
        replica = inner_address(running["enode"], "REPLICA_LISTEN_ADDRESS")

        async with reached(name_server, authority, operator) as channel:  # as an operator makes the first user
            assert (await NameServiceStub(channel).PutUser(PUT)).user.access_key == "root"
        async with reached(name_server, authority, client) as channel:
            names = NameServiceStub(channel)
            watch = namesrv_pb2.WatchRoutesRequest(include_handle_keys=True)
            await refused(names.GetUser(namesrv_pb2.GetUserRequest(access_key="root")), "role_names.snode")
            await refused(names.WatchRoutes(watch), "role_names.snode")
            await refused(names.WatchRoutes(namesrv_pb2.WatchRoutesRequest()), "role_names.operator")
            await refused(names.PutUser(PUT), "role_names.operator")
        async with reached(enode, authority, client) as channel:
            store = EnodeServiceStub(channel)
            await refused(store.Append(), "role_names.snode")
            await refused(store.FetchBatches(), "role_names.snode")
            await refused(store.CommitOffsets(enode_pb2.CommitOffsetsRequest(group="g")), "role_names.snode")
            hand_over = enode_replicas_pb2.HandOverRequest()
            await refused(EnodeReplicasServiceStub(channel).HandOver(hand_over), "role_names.operator")
        async with reached(replica, authority, client) as channel:
            members = ReplicationServiceStub(channel)
            await refused(members.Exchange(), "role_names.enode")
            await refused(members.Join(replication_pb2.JoinRequest()), "role_names.enode")
            await refused(members.CopyFrame(replication_pb2.CopyFrameRequest()), "role_names.enode")

        # New certificates while all of them run, then a new connection that has to use them.
        for role in ROLES:
            await authority.sign(role)
        await running["enode"].kill()
        await running["enode"].start()
        await works(running["snode"], "u")


async def test_one_certificate_for_all_roles_needs_a_setting(authority: Authority, tmp_path: Path) -> None:
    """As after an upgrade, processes without the setting are refused, and their logs name it; with it they work."""
    shared = await authority.sign("all", NAME)
    certificates = dict.fromkeys(ROLES, shared)
    async with processes(tmp_path / "before", authority, certificates) as running:
        await running["namesrv"].start()
        await running["enode"].start()
        assert f"is for {NAME}. Call" in await running["enode"].wait_for_log(
            "add the caller's name to role_names.enode"
        )
    chosen = {"ROLE_NAMES_ENODE": NAME, "ROLE_NAMES_SNODE": NAME}
    async with processes(tmp_path / "after", authority, certificates, **chosen) as running:
        for process in running.values():
            await process.start()
        await works(running["snode"], "t")
        client = await authority.sign("client", "client.example")
        async with reached(inner_address(running["namesrv"]), authority, client) as channel:
            request = namesrv_pb2.GetUserRequest(access_key="root")
            await refused(NameServiceStub(channel).GetUser(request), "role_names.snode")


async def test_a_snode_with_rights_beside_open_inner_ports_does_not_start(tmp_path: Path) -> None:
    """The process ends before it serves, with the exit code for wrong settings, unless `insecure` is set."""
    (tmp_path / "access.toml").write_text('[[user]]\naccess_key = "ann"\nadmin = true\n')
    environ: dict[str, object] = {"ACCESS_FILE": tmp_path / "access.toml"}
    with pytest.raises(DidNotStart, match="cluster_token_file or mutual TLS") as error:
        await RoleProcess("snode", tmp_path / "snode", environ).start()
    assert error.value.exit_code == 253
    name_server = RoleProcess("namesrv", tmp_path / "namesrv")
    await name_server.start()
    accepted = {**environ, "NAMESRV_ADDRESS": name_server.address, "INSECURE": True}
    snode = RoleProcess("snode", tmp_path / "accepted", accepted)
    try:
        await snode.start()
    finally:
        await snode.kill()
        await name_server.kill()
