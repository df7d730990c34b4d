"""Tests of full ports, and of the silent connections that are closed there."""

from ortoo.common.grpc.limits.connections import ServerConnection
from ortoo.common.grpc.limits.full_ports import (
    FOUND_S,
    NEVER_SENT_MS,
    SILENT_MS,
    FullPort,
    FullPorts,
)

MOST = 20


def connections(port: int, count: int, silent_ms: int, received_bytes: int = 0) -> list[ServerConnection]:
    """Connections to `port`, each silent for a millisecond longer than the previous one."""
    peers = (("10.0.0.1", 1_000 + number) for number in range(count))
    return [
        ServerConnection(peer[1], port, peer, silent_ms + number, received_bytes) for number, peer in enumerate(peers)
    ]


def test_a_port_below_nine_tenths_keeps_its_silent_connections() -> None:
    """Another port of the process does not count for it."""
    many = [*connections(1, 17, 10 * SILENT_MS), *connections(2, 17, 10 * SILENT_MS)]
    assert FullPorts(MOST).silent(many) == {}


def test_a_full_port_ends_the_longest_silent_down_to_three_quarters() -> None:
    """Other ports keep theirs."""
    full = connections(1, 18, NEVER_SENT_MS + 1)
    chosen = FullPorts(MOST).silent([*full, *connections(2, 17, 10 * SILENT_MS)])
    assert chosen == {1: [full[17], full[16], full[15]]}


def test_a_client_that_has_sent_may_be_silent_for_longer() -> None:
    """A client of gRPC answers a ping every 30 s. The port is still full, which is a finding."""
    ports = FullPorts(MOST)
    assert ports.silent(connections(1, MOST, SILENT_MS - MOST, received_bytes=1)) == {1: []}
    assert ports.silent(connections(1, MOST, NEVER_SENT_MS - MOST)) == {1: []}
    assert len(ports.silent(connections(1, MOST, SILENT_MS + 1, received_bytes=1))[1]) == MOST // 4


def test_the_finding_stays_for_a_while() -> None:
    """`ortoo doctor` asks rarely, and silent connections may have been closed since."""
    ports = FullPorts(MOST)
    assert list(ports.findings(0.0)) == []
    ports.note(FullPort(4711, 10.0, 18, 3))
    (found,) = ports.findings(10.0 + FOUND_S)
    assert found.name == "connection limit reached"
    assert "port 4711 had 18 connections of 20" in found.observed
    assert list(ports.findings(10.1 + FOUND_S)) == []
