"""Processes of a cluster call each other by mutual TLS; without TLS only health checks are answered."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from ortoo.client import ClusterFinding, ConsumerSettings, connect
from ortoo.common.errors import Invalid, Unavailable
from ortoo.common.errors.status import rpc_errors
from ortoo.common.grpc.channels import Channels
from ortoo.enode.settings import load
from ortoo.v1 import client_pb2, enode_pb2, namesrv_pb2, replication_pb2
from ortoo.v1.admin_pb2_grpc import AdminServiceStub
from ortoo.v1.enode_pb2_grpc import EnodeServiceStub
from ortoo.v1.namesrv_pb2_grpc import NameServiceStub
from ortoo.v1.replication_pb2_grpc import ReplicationServiceStub
from ortoo.verification.servers.cluster import InProcessCluster, open_cluster
from ortoo.verification.servers.ports import free_ports
from ortoo.verification.servers.processes import RoleProcess
from ortoo.verification.servers.valkey import valkey
from tests.findings import of_cluster
from tests.integration.certificates import NAME, Authority
from tests.integration.enode_replicas import leading, open_members
from tests.integration.health import until_ready

ROLES = ("namesrv", "enode", "snode")


@pytest.fixture
async def authority(tmp_path: Path) -> Authority:
    """The certificate authority of the cluster."""
    return await Authority.make(tmp_path / "authority")


async def guarded(authority: Authority) -> dict[str, dict[str, Any]]:
    """Settings of all roles, each with a certificate of its own."""
    settings: dict[str, dict[str, Any]] = {role: dict(authority.settings(await authority.sign(role))) for role in ROLES}
    return settings


async def shown_by(address: str, authority: Authority, who: str) -> bytes:
    """The certificate that a port presents to a caller with `certificate`."""
    context = ssl.create_default_context(cafile=str(authority.ca_file))
    context.check_hostname = False
    context.load_cert_chain(authority.folder / f"{who}.pem", authority.folder / f"{who}.key")
    host, _, port = address.rpartition(":")
    _, writer = await asyncio.open_connection(host, int(port), ssl=context, server_hostname=NAME)
    found: bytes = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.close()
    return found


async def works(cluster: InProcessCluster, group: str) -> None:
    """A message passes through all roles."""
    async with connect(cluster.address) as mq, asyncio.timeout(60):
        await mq.admin.ensure_topic("t", queue_count=1)
        async with mq.producer("t") as producer:
            await producer.send(b"x")
        async with mq.consumer(group, "t", ConsumerSettings(from_beginning=True)) as consumer:
            async for message in consumer:
                message.ack()
                break


@pytest.mark.usefixtures("each_transport")
async def test_only_who_shows_a_certificate_is_answered(authority: Authority, tmp_path: Path) -> None:
    """At name server and enode; health probes without TLS still work, and nothing else."""
    async with open_cluster(tmp_path, settings=await guarded(authority)) as cluster, asyncio.timeout(90):
        await works(cluster, "g")
        other = await (await Authority.make(tmp_path / "other")).sign("stranger")
        roots = authority.ca_file.read_bytes()
        strangers = {
            "shows none": grpc.ssl_channel_credentials(roots),
            "another authority's": grpc.ssl_channel_credentials(
                roots, other.key_file.read_bytes(), other.certificate_file.read_bytes()
            ),
        }
        news = await cluster.name_service.WatchRoutes(namesrv_pb2.WatchRoutesRequest()).read()
        assert isinstance(news, namesrv_pb2.WatchRoutesResponse)
        [enode] = news.enodes
        assert enode.address == cluster.address_of("enode-0")
        calls: dict[str, Any] = {
            cluster.address_of("namesrv-0"): lambda c: NameServiceStub(c).ListTopics(namesrv_pb2.ListTopicsRequest()),
            enode.address: lambda c: EnodeServiceStub(c).DescribeStore(enode_pb2.DescribeStoreRequest()),
        }
        named = [("grpc.ssl_target_name_override", NAME)]
        for address, call in calls.items():
            for credentials in strangers.values():
                async with grpc.aio.secure_channel(address, credentials, options=named) as channel:
                    with pytest.raises(grpc.aio.AioRpcError) as refused:
                        await call(channel)
                    assert refused.value.code() is grpc.StatusCode.UNAVAILABLE
            async with grpc.aio.insecure_channel(address) as channel:
                with (
                    pytest.raises(Unavailable, match="it expects TLS, or it rejects the certificate"),
                    rpc_errors("it"),
                ):
                    await call(channel)
        for name in ("namesrv-0", "enode-0"):
            call = calls[cluster.address_of(name)]
            async with grpc.aio.insecure_channel(cluster.running[name].health_address) as channel:
                await until_ready(channel)
                with pytest.raises(grpc.aio.AioRpcError, match="tls_cluster_certificate_file") as error:
                    await call(channel)
                assert error.value.code() is grpc.StatusCode.PERMISSION_DENIED


@pytest.mark.usefixtures("each_transport")
async def test_new_certificates_count_without_a_restart(authority: Authority, tmp_path: Path) -> None:
    """A port presents the new one on the next connection, and calls are made with it; a broken file changes nothing."""
    async with open_cluster(tmp_path, settings=await guarded(authority)) as cluster, asyncio.timeout(90):
        await works(cluster, "g")
        for role in ("enode", "namesrv"):
            address = cluster.address_of(f"{role}-0")
            before = await shown_by(address, authority, "snode")
            await authority.sign(role)
            assert await shown_by(address, authority, "snode") != before
            (authority.folder / f"{role}.pem").write_text("nonsense")
            whole = await shown_by(address, authority, "snode")
            await authority.sign(role)
            assert await shown_by(address, authority, "snode") not in (before, whole)
        # A new root: processes that had not reloaded it could not reconnect.
        fresh = await Authority.make(tmp_path / "fresh")
        for role in ROLES:
            made = await fresh.sign(role)
            for file in (made.certificate_file, made.key_file):
                (authority.folder / file.name).write_bytes(file.read_bytes())
        authority.ca_file.write_bytes(fresh.ca_file.read_bytes())
        await cluster.close("enode-0")
        cluster.settings["enode"] |= {"listen_address": "127.0.0.1:0"}
        cluster.channels._tls.reload_if_changed()  # type: ignore[union-attr]
        await cluster.channels.drop(cluster.address_of("namesrv-0"))
        await cluster.open_enode("enode-0")
        while True:
            try:
                await works(cluster, "h")
                break
            except Unavailable:  # the snode is not connected to the new enode yet
                await cluster.clock.sleep(0.1)


async def test_an_enode_with_an_expired_certificate_is_named_with_the_reason(
    authority: Authority, tmp_path: Path
) -> None:
    """It gets no lease after a restart. The remedy is a new certificate, which it uses without another restart."""
    settings = await guarded(authority)
    settings["namesrv"] |= {"lease_s": 1.0}
    clear, secured = free_ports(2)
    settings["enode"] |= {
        "listen_address": f"127.0.0.1:{clear}",
        "tls_cluster_listen_address": f"127.0.0.1:{secured}",
    }
    async with open_cluster(tmp_path, settings=settings) as cluster, asyncio.timeout(90):
        await works(cluster, "g")
        authority.sign_dated("enode", NAME, begins_days=-2, ends_days=-1)
        await cluster.close("enode-0")
        await cluster.open_enode("enode-0", registers=False)
        async with connect(cluster.address) as mq:

            async def found(name: str) -> ClusterFinding:
                while True:
                    for one in await mq.admin.operations.list_findings(timeout_s=30):
                        if one.name == name and "no lease" in one.observed:
                            return one
                    await cluster.clock.sleep(0.1)

            away = await found("enode unavailable")
            assert "a process runs at its address" in away.observed
            assert "its certificate has expired" in away.observed
            assert away.remedy.startswith("renew its certificate")
            await authority.sign("enode")
            while of_cluster(await mq.admin.operations.list_findings(timeout_s=30)):
                await cluster.clock.sleep(0.1)


async def test_members_speak_by_it(authority: Authority, tmp_path: Path) -> None:
    """A set of three forms, serves and fails over by mutual TLS; replicas refuse callers without a certificate."""
    settings = await guarded(authority)
    tls = {name: value for name, value in settings["enode"].items() if name.startswith("tls_")}
    async with (
        open_cluster(tmp_path, enodes=0, settings=settings) as cluster,
        open_members(cluster, **tls) as members,
        asyncio.timeout(90),
    ):
        first = await leading(cluster, members)
        while True:
            try:
                await works(cluster, "g")
                break
            except Unavailable:  # the snode is not connected to the enode yet
                await cluster.clock.sleep(0.1)
        roots = grpc.ssl_channel_credentials(authority.ca_file.read_bytes())
        named = [("grpc.ssl_target_name_override", NAME)]
        request = replication_pb2.JoinRequest(cluster="default", enode="enode-0", set_id="another")
        for member in members:
            assert member.replica_address == member.process.settings.replica_listen_address
            async with grpc.aio.secure_channel(member.replica_address, roots, options=named) as channel:
                with pytest.raises(grpc.aio.AioRpcError) as refused:
                    await ReplicationServiceStub(channel).Join(request)
                assert refused.value.code() is grpc.StatusCode.UNAVAILABLE
            async with grpc.aio.insecure_channel(member.replica_address) as channel:
                with (
                    pytest.raises(Unavailable, match="it expects TLS, or it rejects the certificate"),
                    rpc_errors("it"),
                ):
                    await ReplicationServiceStub(channel).Join(request)
        await first.process.stop()
        assert await leading(cluster, [one for one in members if one is not first]) is not first
        while True:
            try:
                await works(cluster, "h")
                break
            except Unavailable:  # the snode does not know the new leader yet
                await cluster.clock.sleep(0.1)


async def test_snodes_call_each_other_by_it_too(authority: Authority, tmp_path: Path) -> None:
    """Queries between snodes about their clients go to the cluster port of the other snode."""
    settings = await guarded(authority)
    async with valkey(tmp_path / "valkey") as store:
        settings["snode"] |= {"redis_url": store.url}
        async with open_cluster(tmp_path, snodes=2, settings=settings) as cluster, asyncio.timeout(60):
            await cluster.create_topic("t")
            async with (
                Channels() as channels,
                connect(cluster.address, client_id="c") as mq,
                mq.pull_consumer("g", "t"),
            ):
                stub = AdminServiceStub(channels.channel_to(cluster.address_of("snode-1")))
                request = client_pb2.DescribeClientRequest(client_id="c", group="g", ask_client=True)
                while not (await stub.ListClients(client_pb2.ListClientsRequest(group="g"))).clients:
                    await cluster.clock.sleep(0.05)
                found = await stub.DescribeClient(request)
                assert found.client.snode == "snode-0"
                assert not found.HasField("failure")


@pytest.fixture
async def processes(authority: Authority, tmp_path: Path) -> AsyncIterator[dict[str, RoleProcess]]:
    """A name server, an enode and a snode, real processes with certificates; none is started."""
    ports = free_ports(6)
    found: dict[str, RoleProcess] = {}
    for at, role in enumerate(ROLES):
        environ: dict[str, object] = {"LISTEN_ADDRESS": f"127.0.0.1:{ports[at]}"}
        chosen = authority.settings(await authority.sign(role), f"127.0.0.1:{ports[3 + at]}")
        environ |= {name.upper(): value for name, value in chosen.items()}
        if role != "namesrv":
            environ |= {"NAME": f"{role}-0", "NAMESRV_ADDRESS": f"127.0.0.1:{ports[3]}"}
        found[role] = RoleProcess(role, tmp_path / f"{role}-0", environ)
    yield found
    for process in found.values():
        await process.kill()


async def test_a_process_without_a_certificate_says_what_it_lacks(
    processes: dict[str, RoleProcess], tmp_path: Path
) -> None:
    """Real processes: without a certificate both ports of the name server refuse it, and its log names the reason."""
    for process in processes.values():
        await process.start()
    clear = str(processes["namesrv"].environ["LISTEN_ADDRESS"])
    reasons = {processes["namesrv"].address: "it expects TLS", clear: "tls_cluster_certificate_file"}
    for number, (name_server, why) in enumerate(reasons.items()):
        name = f"bare-{number}"
        bare = RoleProcess("enode", tmp_path / name, {"NAME": name, "NAMESRV_ADDRESS": name_server})
        await bare.start()
        await bare.wait_for_log(why)
        await bare.kill()
    async with connect(str(processes["snode"].environ["LISTEN_ADDRESS"])) as mq, asyncio.timeout(60):
        assert [(one.name, one.alive) for one in (await mq.admin.describe_cluster()).enodes] == [("enode-0", True)]
        await mq.admin.create_topic("t")
        async with mq.producer("t") as producer:
            await producer.send(b"x")
        async with mq.consumer("g", "t", ConsumerSettings(from_beginning=True)) as consumer:
            async for message in consumer:
                assert message.body == b"x"
                break


@pytest.mark.parametrize("lacks", ["listen_address", "certificate_file", "key_file", "ca_file"])
def test_half_of_the_settings_is_refused_by_name(lacks: str, tmp_path: Path) -> None:
    """The four settings belong together."""
    names = [f"tls_cluster_{end}" for end in ("listen_address", "certificate_file", "key_file", "ca_file")]
    given = {name: "127.0.0.1:0" if "address" in name else str(tmp_path / name) for name in names}
    with pytest.raises(Invalid) as error:
        load({}, overrides={name: value for name, value in given.items() if name != f"tls_cluster_{lacks}"})
    assert error.value.field == f"tls_cluster_{lacks}"
