"""`ortoo doctor` names the typical mistakes, each with its remedy, within two seconds."""

import asyncio
import contextlib
import dataclasses
import io
import json
import socket
import ssl
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from ortoo.cli.doctor.run import TIMEOUT_S as LOOKING_S_MAX
from ortoo.cli.doctor.run import diagnose
from ortoo.client import ConsumerSettings, connect
from ortoo.common.grpc.server import GrpcServer
from ortoo.common.process.clock import SystemClock
from ortoo.enode.index.catalog import RUN_BYTES
from ortoo.v1 import namesrv_pb2, producer_pb2, record_pb2, topic_pb2
from ortoo.v1.producer_pb2_grpc import ProducerServiceStub
from ortoo.verification.servers import command
from ortoo.verification.servers.cluster import SMALL_STORE, InProcessCluster, open_cluster
from ortoo.verification.servers.ports import free_ports
from ortoo.verification.servers.processes import process_cluster
from ortoo.verification.servers.valkey import valkey
from tests.findings import OF_THE_MACHINE, is_of_machine
from tests.integration.certificates import NEW_KEY
from tests.integration.draining import DRAIN_DELAY_S, drains_until
from tests.own_time import own_time

LIMIT_S = 2.0
PATIENCE = 10.0
"""Factor for timeouts where a test is not about time: a starved process must not look like a frozen one."""
HANG_PATIENCE = 5.0
"""The same for processes that hang until each timeout."""
BUSY_S = 1.0
"""Delay that a busy machine may add to deadlines."""
START_S = 30.0
"""Start time of a Python process with the command's libraries on a busy machine; the limit applies to the checks."""


class Ahead(SystemClock):
    """A clock that is a minute fast."""

    def now_ms(self) -> int:
        return super().now_ms() + 60_000


@contextlib.asynccontextmanager
async def listening(
    answer: bytes = b"", *, tls: ssl.SSLContext | None = None, mute: bool = False
) -> AsyncIterator[str]:
    """A server that accepts connections and sends `answer`, or nothing."""
    writers: list[asyncio.StreamWriter] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        with contextlib.suppress(OSError):
            await reader.read(100)
            if not mute:
                writer.write(answer)
                await writer.drain()
                writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls)
    try:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        for writer in writers:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()


async def advice(
    address: str, *options: str, environ: dict[str, str] | None = None, patience: float = PATIENCE
) -> dict[str, str]:
    """The findings of the command, name to remedy. It must keep its time limit."""
    words = ["ortoo", "doctor", "--json", "--patience", str(patience), *options]
    if environ:
        words = ["env", *(f"{name}={value}" for name, value in environ.items()), *words]
    clock = SystemClock()
    begun_s = clock.monotonic_s()
    outcome = await command.run(words, address)
    assert clock.monotonic_s() - begun_s < LIMIT_S * patience + START_S
    assert "Traceback" not in outcome.stderr, outcome.stderr
    found: list[dict[str, Any]] = [json.loads(line) for line in outcome.stdout.splitlines()]
    assert outcome.exit_code == int(any(one["critical"] for one in found))
    assert all(one["observed"] and one["remedy"] for one in found)
    return {one["name"]: one["remedy"] for one in found if one["name"] not in OF_THE_MACHINE}


@pytest.mark.parametrize(
    ("address", "name"),
    [
        ("http://localhost:8081", "URL"),
        ("localhost", "malformed address"),
        ("no-such-host.invalid:8081", "unknown host"),
        ("127.0.0.1:1", "connection refused"),
    ],
)
async def test_address_is_wrong(address: str, name: str) -> None:
    """A malformed address, an unknown host and a closed port have different findings."""
    assert list(await advice(address)) == [name]


def certificate(folder: Path) -> ssl.SSLContext:
    """A server's TLS with a self-signed certificate."""
    options = ("-x509", *NEW_KEY, "-days", "1", "-subj", "/CN=localhost")
    files = ("-keyout", str(folder / "key.pem"), "-out", str(folder / "cert.pem"))
    subprocess.run(("openssl", "req", *options, *files), check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "cert.pem", folder / "key.pem")
    return context


async def test_somebody_else_listens(tmp_path: Path) -> None:
    """TLS, a web server, Redis, a frozen process, a foreign gRPC server: each is named."""
    async with listening(tls=certificate(tmp_path)) as address:
        assert list(await advice(address)) == ["TLS"]
    async with listening(b"HTTP/1.1 400 Bad Request\r\n\r\n") as address:
        assert list(await advice(address)) == ["HTTP/1"]
    async with valkey(tmp_path / "valkey") as redis:
        assert list(await advice(f"127.0.0.1:{redis.port}")) == ["other protocol"]
    async with listening(mute=True) as address:
        assert list(await advice(address, patience=1.0)) == ["frozen"]
    async with GrpcServer("127.0.0.1:0", []) as server:
        assert list(await advice(server.address)) == ["other gRPC server"]


async def test_healthy_cluster_has_no_findings(cluster: InProcessCluster) -> None:
    """Without findings the command prints that and ends with 0."""
    assert await advice(cluster.address) == {}
    words = ["ortoo", "doctor", "--patience", "10"]
    outcome = await command.run(words, cluster.address)
    while is_of_machine(outcome.stdout):
        outcome = await command.run(words, cluster.address)
    assert (outcome.exit_code, outcome.stdout) == (0, f"all is well at {cluster.address}\n")


async def test_other_roles_ports_are_named(cluster: InProcessCluster) -> None:
    """The name server's and the enode's addresses are not for clients."""
    for name, found in (("namesrv-0", "name server's port"), ("enode-0", "enode's port")):
        assert list(await advice(cluster.address_of(name))) == [found]


async def test_proxy_in_the_environment_is_named(cluster: InProcessCluster) -> None:
    """GRPC applies http_proxy; no_proxy exempts the host."""
    proxy = {"http_proxy": "http://proxy.invalid:3128"}
    assert "proxy" in await advice(cluster.address, environ=proxy)
    assert await advice(cluster.address, environ=proxy | {"no_proxy": "127.0.0.1"}) == {}


Breaking = Callable[[InProcessCluster], Awaitable[object]]


async def prepare(cluster: InProcessCluster) -> None:
    """A topic, and a group that lags behind and has no consumer."""
    async with connect(cluster.address) as mq:
        await mq.admin.create_topic("orders")
        async with mq.consumer("stable", "orders", ConsumerSettings(from_beginning=True)) as consumer:
            async with mq.producer("orders") as producer:
                await producer.send(b"x")
            async for message in consumer:
                message.ack()
                break
        async with mq.producer("orders") as producer:
            await producer.send(b"y")


async def read_only(cluster: InProcessCluster) -> None:
    """Make the topic read-only."""
    request = namesrv_pb2.UpdateTopicRequest(name="orders", permission=topic_pb2.PERMISSION_READ_ONLY)
    await cluster.name_service.UpdateTopic(request)


async def switch_off(cluster: InProcessCluster) -> None:
    """Switch the group off."""
    async with connect(cluster.address) as mq:
        await mq.admin.put_group("stable", consume_enabled=False)


async def delete(cluster: InProcessCluster) -> None:
    """Delete the topic."""
    await cluster.name_service.DeleteTopic(namesrv_pb2.DeleteTopicRequest(name="orders"))


async def nothing(cluster: InProcessCluster) -> None:
    """Break nothing."""


TROUBLES: dict[str, tuple[Breaking, tuple[str, ...], str, str]] = {
    "no topic": (nothing, ("--topic", "oders"), "unknown topic", "did you mean orders?"),
    "no group": (nothing, ("--group", "stabel"), "unknown group", "did you mean stable?"),
    "no consumers": (nothing, ("--group", "stable", "--topic", "orders"), "no consumers", "start a consumer"),
    "read-only": (read_only, ("--topic", "orders"), "permission", "topic update"),
    "switched off": (switch_off, ("--group", "stable"), "group disabled", "ortoo group update stable --consume"),
    "deleted": (delete, (), "deleted topics", "ortoo topic undelete orders"),
    "enode unavailable": (lambda c: c.close("enode-0"), ("--topic", "orders"), "enode unavailable", "start it again"),
    "name server unavailable": (lambda c: c.close("namesrv-0"), (), "name server unavailable", "start it"),
}


@pytest.mark.parametrize("trouble", TROUBLES)
async def test_trouble_behind_the_snode_is_named(cluster: InProcessCluster, trouble: str) -> None:
    """Problems of topic, group or processes are named, with a remedy."""
    breaking, options, name, cure = TROUBLES[trouble]
    await prepare(cluster)
    await breaking(cluster)
    found = await advice(cluster.address, *options)
    assert name in found
    assert cure in found[name]


async def test_an_index_that_is_nearly_full_is_named_before_sends_are_refused(tmp_path: Path) -> None:
    """The finding names the command that helps, and goes away when queues were deleted."""
    store = dataclasses.replace(SMALL_STORE, index_bytes_max=5 * RUN_BYTES, disk_check_interval_ms=20)
    settings = {"enode": {"heartbeat_interval_s": 0.1}}
    async with open_cluster(tmp_path, store=store, settings=settings) as cluster, asyncio.timeout(60):

        async def found() -> list[str]:
            return (await looked(cluster.address, patience=PATIENCE))[0]

        assert await found() == []
        await cluster.create_topic("wide", queues=4)
        stub = ProducerServiceStub(cluster.channels.channel_to(cluster.address))
        for number in range(4):
            queue = topic_pb2.Queue(topic="wide", enode="enode-0", queue_id=number)
            await stub.Publish(
                producer_pb2.PublishRequest(topic="wide", queue=queue, messages=[record_pb2.Message(body=b"x")])
            )
        while await found() != ["index nearly full"]:
            await cluster.clock.sleep(0.05)
        async with connect(cluster.address) as mq:
            await mq.admin.delete_topic("wide", at_once=True)
        while await found():
            await cluster.clock.sleep(0.05)


async def test_cluster_that_was_never_whole_is_named(tmp_path: Path) -> None:
    """No enode at all, a clock that is a minute off, and a snode that advertises an unreachable address."""
    lost = f"127.0.0.1:{free_ports(1)[0]}"
    settings = {"snode": {"advertised_address": lost}}
    async with open_cluster(tmp_path, enodes=0, settings=settings, clock=Ahead()) as cluster:
        found = await advice(cluster.address)
    assert sorted(found) == ["advertised address", "clock skew", "no enode"]


@pytest.mark.parametrize("is_open", [True, False])
async def test_rules_of_access_that_can_be_passed_are_named(tmp_path: Path, *, is_open: bool) -> None:
    """Without a cluster token any process that reaches an enode can bypass them; it is no error, and has a remedy."""
    (tmp_path / "access.toml").write_text('trusted_addresses = ["127.0.0.0/8"]\n[[user]]\naccess_key = "ann"\n')
    (tmp_path / "token").write_text("a-token-of-this-cluster")
    own = {} if is_open else {"cluster_token_file": str(tmp_path / "token")}
    snode = {**own, "access_file": str(tmp_path / "access.toml")}
    async with open_cluster(tmp_path, settings={"namesrv": own, "enode": own, "snode": snode}) as cluster:
        found = await advice(cluster.address)
    assert list(found) == (["inner ports"] if is_open else [])
    assert all("cluster_token_file" in cure for cure in found.values())


@contextlib.asynccontextmanager
async def dropping() -> AsyncIterator[str]:
    """An address whose packets are dropped: a listener with a full backlog that never accepts."""
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(0)
    port = listener.getsockname()[1]
    waiting = [socket.socket() for _ in range(3)]
    try:
        for one in waiting:
            one.setblocking(False)
            one.connect_ex(("127.0.0.1", port))
        yield f"127.0.0.1:{port}"
    finally:
        for one in (*waiting, listener):
            one.close()


async def looked(address: str, *, topic: str = "", group: str = "", patience: float = 1.0) -> tuple[list[str], float]:
    """The findings of checks in this process, and their duration in seconds without stalls of the machine."""
    out = io.StringIO()
    async with own_time() as taken:
        with contextlib.redirect_stdout(out), contextlib.suppress(SystemExit):
            await diagnose(address, topic, group, as_json=True, timeout_factor=patience)
    names = [json.loads(line)["name"] for line in out.getvalue().splitlines()]
    return [name for name in names if name not in OF_THE_MACHINE], taken.seconds


async def test_whatever_hangs_is_named_within_two_seconds(tmp_path: Path) -> None:
    """Dropped packets, silence, a frozen enode, a frozen name server, a lost address for clients: two seconds each.

    A stall that is longer than a limit would look like what hangs. Therefore a patient doctor finds the names.
    """
    assert LOOKING_S_MAX <= LIMIT_S
    taken: dict[str, float] = {}

    async def hanging(address: str, *, topic: str = "", group: str = "") -> tuple[list[str], float]:
        found, _ = await looked(address, topic=topic, group=group, patience=HANG_PATIENCE)
        _, taken_s = await looked(address, topic=topic, group=group)
        return found, taken_s

    async with dropping() as address:
        found, taken["dropped packets"] = await hanging(address)
        assert found == ["unreachable"]
        async with listening(mute=True) as silent:
            found, taken["silence"] = await hanging(silent)
        assert found == ["frozen"]
        environ = {"snode": {"ADVERTISED_ADDRESS": address}}
        async with process_cluster(tmp_path, environ=environ) as cluster:
            async with connect(cluster.address) as mq:
                await mq.admin.create_topic("orders")
            found, taken["advertised address"] = await hanging(cluster.address, topic="orders")
            assert found == ["advertised address"]
            cluster.enode.freeze()
            found, taken["frozen enode"] = await hanging(cluster.address, topic="orders", group="stable")
            assert {"enode unresponsive", "checks incomplete"} <= set(found)
            cluster.enode.thaw()
            cluster.namesrv.freeze()
            found, taken["frozen name server"] = await hanging(cluster.address, topic="orders", group="stable")
            assert "name server unavailable" in found
            cluster.namesrv.thaw()
            cluster.snode.freeze()
            found, taken["frozen snode"] = await hanging(cluster.address, topic="orders", group="stable")
            assert found == ["frozen"]
    assert max(taken.values()) < LIMIT_S + BUSY_S, taken


async def test_snode_that_stops_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A draining snode reports it; that is no fault."""
    drained = drains_until(monkeypatch)
    async with open_cluster(tmp_path, settings={"snode": {"drain_delay_s": DRAIN_DELAY_S}}) as cluster:
        closing = asyncio.ensure_future(cluster.close("snode-0"))  # noqa: TID251  # it runs beside the test
        assert "draining" in await advice(cluster.address)
        drained.set()
        await closing
