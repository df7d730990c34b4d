"""Each port accepts a limited number of connections; further ones are closed at once and take no descriptor."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from ortoo.common.errors.findings import Finding
from ortoo.common.grpc import server as grpc_server
from ortoo.common.grpc.channels import Channels
from ortoo.common.grpc.limits import full_ports
from ortoo.common.grpc.limits.connections import connections_to
from ortoo.common.grpc.server import GrpcServer
from ortoo.common.grpc.tls import TlsListener, make_self_signed_certificate
from ortoo.common.machine.descriptors import Descriptors, open_descriptors
from ortoo.common.process.clock import SystemClock

pytestmark = pytest.mark.usefixtures("each_transport")

MOST = 24
PATIENCE_S = 60.0
NEVER_S = 3600.0
CHECK = health_pb2.HealthCheckRequest()


class Idle:
    """Connections that send nothing."""

    def __init__(self) -> None:
        self.writers: list[asyncio.StreamWriter] = []
        self.closed = 0
        self.changed = asyncio.Event()

    async def come(self, address: str, count: int) -> None:
        """Open `count` more."""
        host, _, port = address.rpartition(":")
        for _ in range(count):
            reader, writer = await asyncio.open_connection(host, int(port))
            self.writers.append(writer)
            task = asyncio.get_running_loop().create_task(self._watch(reader))
            task.add_done_callback(lambda _: self.changed.set())

    async def _watch(self, reader: asyncio.StreamReader) -> None:
        with contextlib.suppress(OSError):
            await reader.read()
        self.closed += 1

    async def until_closed(self, count: int) -> None:
        """Wait until the server has closed `count` of them."""
        async with asyncio.timeout(PATIENCE_S):
            while self.closed < count:
                self.changed.clear()
                await self.changed.wait()

    def go(self) -> None:
        """Close all."""
        for writer in self.writers:
            writer.transport.abort()


@contextlib.asynccontextmanager
async def idle() -> AsyncIterator[Idle]:
    """Idle connections that are closed at the end of the block."""
    found = Idle()
    try:
        yield found
    finally:
        found.go()


def silent_after(seconds: float, patch: pytest.MonkeyPatch) -> None:
    """Set the time that a connection may live without a byte, so that the machine's speed does not matter."""
    patch.setattr(full_ports, "NEVER_SENT_MS", int(seconds * 1000))


async def found_at(server: GrpcServer, text: str) -> Finding:
    """The finding of a full port with `text`, when the server has checked its connections."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            for one in server.findings():
                if text in one.observed:
                    return one
            await SystemClock().sleep(0.02)


def port_of(address: str) -> int:
    """The port of host:port."""
    return int(address.rpartition(":")[2])


@pytest.fixture(autouse=True)
def patient_set_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Connections that are not set up stay open for the whole test, so that only the limits close them."""
    names = ("grpc.server_handshake_timeout_ms", "grpc.http2.settings_timeout")
    options = dict(grpc_server.OPTIONS)
    assert options.keys() >= set(names)
    options.update(dict.fromkeys(names, int(NEVER_S * 1000)))
    monkeypatch.setattr(grpc_server, "OPTIONS", tuple(options.items()))


async def test_connections_beyond_the_limit_are_closed_and_the_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Idle ones count as well. An earlier client still works; later clients wait until some are closed."""
    silent_after(NEVER_S, monkeypatch)
    async with (
        GrpcServer("127.0.0.1:0", [], connections_max=MOST, connections_per_address_max=MOST) as server,
        Channels() as channels,
        grpc.aio.insecure_channel(server.address) as late,
        idle() as quiet,
    ):
        stub = health_pb2_grpc.HealthStub(channels.channel_to(server.address))
        assert (await stub.Check(CHECK)).status == health_pb2.HealthCheckResponse.SERVING
        assert not list(server.findings())
        before = open_descriptors()
        await quiet.come(server.address, 60)
        await quiet.until_closed(60 - (MOST - 1))
        assert len(connections_to({port_of(server.address)})) == MOST
        assert open_descriptors() <= before + 60 + MOST  # both ends are in this process
        assert (await stub.Check(CHECK)).status == health_pb2.HealthCheckResponse.SERVING
        found = await found_at(server, f"port {port_of(server.address)} had {MOST} connections of {MOST}")
        assert found.name == "connection limit reached"
        assert str(Descriptors.of_process().limit) in found.observed
        calling = health_pb2_grpc.HealthStub(late).Check(CHECK, wait_for_ready=True)
        assert (await stub.Check(CHECK)).status == health_pb2.HealthCheckResponse.SERVING
        assert not calling.done()
        quiet.go()
        assert (await calling).status == health_pb2.HealthCheckResponse.SERVING


async def test_unfinished_handshakes_of_tls_count_and_each_port_has_its_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client that never finishes its TLS handshake takes no connection from the plaintext port."""
    silent_after(NEVER_S, monkeypatch)
    certificate, key = make_self_signed_certificate(("127.0.0.1",))
    for name, data in (("certificate", certificate), ("key", key)):
        (tmp_path / name).write_bytes(data)
    tls = TlsListener("127.0.0.1:0", str(tmp_path / "certificate"), str(tmp_path / "key"))
    server = GrpcServer("127.0.0.1:0", [], tls=tls, connections_per_address_max=MOST, descriptors_max=2 * MOST)
    async with server, Channels() as channels, idle() as quiet:
        await quiet.come(server.tls_address, 60)
        await quiet.until_closed(60 - MOST)
        stub = health_pb2_grpc.HealthStub(channels.channel_to(server.address))
        # The server may count a connection for a moment after its client has seen the end.
        while len(connections_to({port_of(server.tls_address)})) > MOST:
            await stub.Check(CHECK)
        assert len(connections_to({port_of(server.tls_address)})) == MOST
        await found_at(server, f" connections of {MOST}")
        assert [one.observed.split(" had ")[0] for one in server.findings()] == [f"port {port_of(server.tls_address)}"]
        assert (await stub.Check(CHECK)).status == health_pb2.HealthCheckResponse.SERVING


async def test_new_clients_get_in_where_idle_connections_fill_a_port(monkeypatch: pytest.MonkeyPatch) -> None:
    """Connections that never sent a byte are closed after a time, only as many as needed; a client stays."""
    silent_after(NEVER_S, monkeypatch)
    async with (
        GrpcServer("127.0.0.1:0", [], connections_max=MOST, connections_per_address_max=MOST) as server,
        Channels() as channels,
        grpc.aio.insecure_channel(server.address) as late,
        idle() as quiet,
    ):
        stub = health_pb2_grpc.HealthStub(channels.channel_to(server.address))
        watching = stub.Watch(CHECK)
        assert (await watching.read()).status == health_pb2.HealthCheckResponse.SERVING
        await quiet.come(server.address, MOST - 1)
        while len(connections_to({port_of(server.address)})) < MOST:  # the server accepts beside this
            await stub.Check(CHECK)
        await found_at(server, "; 0 silent ones were closed")
        silent_after(0.0, monkeypatch)
        await quiet.until_closed(MOST - MOST * 3 // 4)
        # The server may count a connection for a moment after its client has seen the end.
        answer = await health_pb2_grpc.HealthStub(late).Check(CHECK, wait_for_ready=True)
        assert answer.status == health_pb2.HealthCheckResponse.SERVING
        assert quiet.closed == MOST - MOST * 3 // 4
        assert not watching.done()
        await found_at(server, f"; {quiet.closed} silent ones were closed")
        assert server.ended_connections()["silent"] == quiet.closed


async def test_unfinished_handshakes_are_closed_at_a_full_port(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if their address may have more connections than the port. The other port is not full."""
    silent_after(NEVER_S, monkeypatch)
    tls = TlsListener("127.0.0.1:0", "", "")
    server = GrpcServer("127.0.0.1:0", [], tls=tls, connections_max=MOST, connections_per_address_max=10 * MOST)
    async with server, Channels() as channels, idle() as quiet:
        await quiet.come(server.tls_address, 60)
        await quiet.until_closed(60 - MOST)
        assert len(connections_to({port_of(server.tls_address)})) == MOST
        await quiet.come(server.address, MOST - 1)
        stub = health_pb2_grpc.HealthStub(channels.channel_to(server.address))
        assert (await stub.Check(CHECK)).status == health_pb2.HealthCheckResponse.SERVING
        assert quiet.closed == 60 - MOST
