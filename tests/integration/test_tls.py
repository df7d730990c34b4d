"""The second port of a snode: the same service with TLS."""

import asyncio
import shutil
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from apache.rocketmq.v2 import service_pb2
from apache.rocketmq.v2.definition_pb2 import Code, Resource
from apache.rocketmq.v2.service_pb2_grpc import MessagingServiceStub
from ortoo.client import ConsumerSettings, connect
from ortoo.client.admin.address_check import SpokenProtocol, check_address
from ortoo.common.errors import Invalid, Unavailable
from ortoo.snode.settings import load
from ortoo.v1 import admin_pb2, namesrv_pb2
from ortoo.v1.admin_pb2_grpc import AdminServiceStub
from ortoo.v1.producer_pb2_grpc import ProducerServiceStub
from ortoo.verification.servers.cluster import open_cluster
from tests.integration.certificates import NEW_KEY


async def certificate(folder: Path) -> tuple[Path, Path]:
    """A self-signed certificate for localhost, and its key."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("NO OPENSSL, TLS was NOT tested; install openssl")
    key, made = folder / "key.pem", folder / "certificate.pem"
    process = await asyncio.create_subprocess_exec(
        openssl, "req", "-x509", *NEW_KEY, "-days", "2", "-subj", "/CN=localhost",
        "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-keyout", str(key), "-out", str(made),
        stderr=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    assert await process.wait() == 0
    return made, key


async def test_both_ports_serve_the_same(tmp_path: Path) -> None:
    """With the server's certificate as root a client uses TLS; the other port still works without it."""
    made, key = await certificate(tmp_path)
    chosen = {"tls_listen_address": "127.0.0.1:0", "tls_certificate_file": str(made), "tls_key_file": str(key)}
    async with open_cluster(tmp_path, settings={"snode": chosen}) as cluster:
        await cluster.create_topic("t")
        credentials = grpc.ssl_channel_credentials(made.read_bytes())
        async with (
            grpc.aio.secure_channel(cluster.running["snode-0"].tls_address, credentials) as secret,
            grpc.aio.insecure_channel(cluster.address) as clear,
        ):
            for channel in (secret, clear):
                request = service_pb2.QueryRouteRequest(topic=Resource(name="t"))
                answer = await MessagingServiceStub(channel).QueryRoute(request, metadata=(("x-mq-client-id", "c"),))
                assert answer.status.code == Code.OK
        async with grpc.aio.secure_channel(cluster.address, credentials) as wrong:
            with pytest.raises(grpc.aio.AioRpcError):
                await health_pb2_grpc.HealthStub(wrong).Check(health_pb2.HealthCheckRequest(), timeout=10)


async def test_where_tls_is_required_nothing_is_done_in_the_clear(tmp_path: Path) -> None:
    """E-253: each protocol and each kind of call is refused on the plain port, which answers health checks only."""
    made, key = await certificate(tmp_path)
    chosen = {
        "tls_listen_address": "127.0.0.1:0",
        "tls_certificate_file": str(made),
        "tls_key_file": str(key),
        "tls_required": True,
    }
    async with open_cluster(tmp_path, settings={"snode": chosen}) as cluster:
        await cluster.create_topic("t")
        credentials = grpc.ssl_channel_credentials(made.read_bytes())
        route = service_pb2.QueryRouteRequest(topic=Resource(name="t"))
        caller = (("x-mq-client-id", "c"),)
        async with (
            grpc.aio.secure_channel(cluster.running["snode-0"].tls_address, credentials) as secret,
            grpc.aio.insecure_channel(cluster.address) as clear,
        ):
            assert (await MessagingServiceStub(secret).QueryRoute(route, metadata=caller)).status.code == Code.OK
            for call in (
                MessagingServiceStub(clear).QueryRoute(route, metadata=caller),
                AdminServiceStub(clear).ListTopics(namesrv_pb2.ListTopicsRequest()),
                AdminServiceStub(clear).Tail(admin_pb2.TailRequest(topic="t")).read(),
                ProducerServiceStub(clear).Produce(iter(())).read(),
            ):
                with pytest.raises(grpc.aio.AioRpcError) as refused:
                    await call
                assert refused.value.code() is grpc.StatusCode.PERMISSION_DENIED
                assert "tls_listen_address" in (refused.value.details() or "")
            health = await health_pb2_grpc.HealthStub(clear).Check(health_pb2.HealthCheckRequest())
            assert health.status == health_pb2.HealthCheckResponse.SERVING
        async with grpc.aio.insecure_channel(cluster.running["snode-0"].tls_address) as plain_to_tls:
            with pytest.raises(grpc.aio.AioRpcError):
                await MessagingServiceStub(plain_to_tls).QueryRoute(route, metadata=caller, timeout=10)


def test_required_tls_needs_a_port() -> None:
    """E-253: a snode that no client could reach does not start, and names the setting."""
    with pytest.raises(Invalid, match="tls_listen_address") as caught:
        load({"ORTOO_SNODE_TLS_REQUIRED": "true"})
    assert caught.value.field == "tls_required"


@pytest.mark.parametrize(
    ("certificate_file", "words"), [("absent.pem", "cannot be read"), ("text.pem", "is not a PEM file")]
)
async def test_a_snode_without_a_usable_certificate_does_not_start(
    certificate_file: str, words: str, tmp_path: Path
) -> None:
    """The error names the setting and the file; no port is opened."""
    (tmp_path / "text.pem").write_text("hello")
    (tmp_path / "key.pem").write_text("-----BEGIN PRIVATE KEY-----")
    chosen = {
        "tls_listen_address": "127.0.0.1:0",
        "tls_certificate_file": str(tmp_path / certificate_file),
        "tls_key_file": str(tmp_path / "key.pem"),
    }
    async with open_cluster(tmp_path, snodes=0, settings={"snode": chosen}) as cluster:
        with pytest.raises(Invalid, match=words) as caught:
            await cluster.open_snode("snode-0")
        assert caught.value.field == "tls_certificate_file"


async def signed_by(folder: Path, name: str, issuer: tuple[Path, Path]) -> tuple[Path, Path]:
    """A certificate for localhost that another one signed, and its key."""
    openssl = shutil.which("openssl")
    assert openssl is not None
    made, key = folder / f"{name}.pem", folder / f"{name}.key"
    process = await asyncio.create_subprocess_exec(
        openssl, "req", "-x509", *NEW_KEY, "-days", "2", "-subj", f"/CN={name}",
        "-CA", str(issuer[0]), "-CAkey", str(issuer[1]), "-keyout", str(key), "-out", str(made),
        stderr=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    assert await process.wait() == 0
    return made, key


@pytest.mark.parametrize("by_environment", [False, True])
async def test_our_client_speaks_tls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, by_environment: bool) -> None:
    """Configured by arguments or by the environment; it sends, receives and signs without plain text."""
    made, key = await certificate(tmp_path)
    chosen = {
        "tls_listen_address": "127.0.0.1:0",
        "tls_certificate_file": str(made),
        "tls_key_file": str(key),
        "tls_required": True,
    }
    files: dict[str, Any] = {"tls_ca_file": str(made)}
    async with open_cluster(tmp_path, settings={"snode": chosen}) as cluster, asyncio.timeout(60):
        await cluster.create_topic("t", queues=1)
        address = cluster.running["snode-0"].tls_address
        if by_environment:
            monkeypatch.setenv("ORTOO_TLS_CA_FILE", files.pop("tls_ca_file"))
        async with connect(address, access_key="ann", secret_key="s3cret", **files) as mq:
            async with mq.producer("t") as producer:
                await producer.send(b"x")
            async with mq.consumer("g", ["t"], ConsumerSettings(from_beginning=True)) as consumer:
                assert (await anext(aiter(consumer))).body == b"x"
            assert [topic.name for topic in await mq.admin.list_topics()] == ["t"]
        seen = await check_address(address, {"ORTOO_TLS_CA_FILE": str(made)})
        assert (seen.protocol, seen.role, seen.serving) == (SpokenProtocol.HTTP2, "snode", True)
        assert (await check_address(address, {})).protocol is SpokenProtocol.TLS


async def test_a_snode_may_ask_for_a_certificate(tmp_path: Path) -> None:
    """A client without a certificate, or with a foreign one, is refused; one signed by the right root is served."""
    made, key = await certificate(tmp_path)
    shown, shown_key = await signed_by(tmp_path, "client", (made, key))
    (tmp_path / "other").mkdir()
    other, other_key = await certificate(tmp_path / "other")
    chosen = {
        "tls_listen_address": "127.0.0.1:0",
        "tls_certificate_file": str(made),
        "tls_key_file": str(key),
        "tls_client_ca_file": str(made),
    }
    async with open_cluster(tmp_path, settings={"snode": chosen}) as cluster, asyncio.timeout(60):
        address = cluster.running["snode-0"].tls_address
        strangers: list[dict[str, Any]] = [{}, {"tls_certificate_file": str(other), "tls_key_file": str(other_key)}]
        for files in strangers:
            async with connect(address, tls_ca_file=str(made), **files) as stranger:
                with pytest.raises(Unavailable):
                    await stranger.admin.list_topics()
        own: dict[str, Any] = {"tls_certificate_file": str(shown), "tls_key_file": str(shown_key)}
        async with connect(address, tls_ca_file=str(made), **own) as mq:
            assert await mq.admin.list_topics() == []


@pytest.mark.parametrize(
    ("files", "field"),
    [
        ({"tls_ca_file": "absent.pem"}, "tls_ca_file"),
        ({"tls_ca_file": "system", "tls_key_file": "k"}, "tls_certificate_file"),
        ({"tls_certificate_file": "c", "tls_key_file": "k"}, "tls_ca_file"),
        ({"tls_ca_file": "system", "tls_certificate_file": "c", "tls_key_file": "absent.pem"}, "tls_key_file"),
    ],
)
async def test_a_client_without_usable_files_says_which(files: dict[str, Any], field: str) -> None:
    """The error comes before any connection."""
    with pytest.raises(Invalid) as refused:
        async with connect("localhost:1", **files):
            pass
    assert refused.value.field == field
