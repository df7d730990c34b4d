"""Connections that a server closes: of an address with too many, of peers that reset streams, and the heaviest."""

import pytest

from ortoo.common.grpc.limits.connection_limits import (
    CONNECTION_BYTES,
    CONNECTIONS_MIN,
    EMPTY_RESETS_PER_S_MAX,
    EMPTY_RESETS_TOGETHER_MAX,
    RESETS_PER_S_MAX,
    RESETS_TOGETHER_MAX,
    ConnectionLimits,
    ResetRates,
    Resets,
    heaviest,
    pending_calls_max,
)
from ortoo.common.grpc.limits.connections import ServerConnection

PEER = ("10.0.0.1", 4711)


def connection(host: str, port: int, silent_ms: int = 0, received_bytes: int = 0) -> ServerConnection:
    return ServerConnection(port, 8081, (host, port), silent_ms, received_bytes)


@pytest.mark.parametrize(
    ("descriptors_max", "memory_bytes", "total"),
    [
        (512, 1 << 40, 512),
        (1 << 20, 1_000 * CONNECTION_BYTES, 1_000),
        (1_024, 1, CONNECTIONS_MIN),
        (CONNECTIONS_MIN // 2, 1, CONNECTIONS_MIN // 2),
    ],
)
def test_memory_and_descriptors_limit_connections(descriptors_max: int, memory_bytes: int, total: int) -> None:
    """The smaller of both; an address has half. Little memory still allows CONNECTIONS_MIN; few descriptors do not."""
    assert ConnectionLimits.chosen(0, 0, memory_bytes, descriptors_max) == ConnectionLimits(total, total // 2)
    assert ConnectionLimits.chosen(7, 0, memory_bytes, descriptors_max) == ConnectionLimits(7, 3)
    assert ConnectionLimits.chosen(7, 7, memory_bytes, descriptors_max) == ConnectionLimits(7, 7)


def test_memory_limits_the_calls_that_wait_in_the_core() -> None:
    """They hold their headers before the process can count them. A burst of 1,000 calls passes everywhere."""
    assert pending_calls_max(128 << 20) == 1_000
    assert pending_calls_max(512 << 20) == 1_638
    assert pending_calls_max(1 << 40) == 3_000


def test_an_operator_cannot_choose_more_connections_than_there_are_descriptors() -> None:
    """A higher value is reduced, and an address has half of the result."""
    assert ConnectionLimits.chosen(10_000, 0, 1 << 40, 512) == ConnectionLimits(512, 256)


def test_of_an_address_with_too_many_those_silent_longest_go() -> None:
    """Other addresses are not affected."""
    many = [connection("10.0.0.1", port, silent_ms=port * 10) for port in range(1, 6)]
    few = [connection("10.0.0.2", port, silent_ms=9_999) for port in range(1, 4)]
    surplus = ConnectionLimits(100, 3).surplus([*few, *many])
    assert {one.peer for one in surplus} == {("10.0.0.1", 5), ("10.0.0.1", 4)}


def test_a_peer_that_resets_streams_without_requests_is_found() -> None:
    """A peer with repeated bursts is closed too; one with rare bursts, or a single one, is not."""
    rates = ResetRates()
    assert not rates.is_beyond(PEER, Resets(0, 0), 0.0)
    assert not rates.is_beyond(PEER, Resets(EMPTY_RESETS_TOGETHER_MAX, 0), 1.0)
    assert not rates.is_beyond(PEER, Resets(EMPTY_RESETS_TOGETHER_MAX, 0), 2.0)
    assert rates.is_beyond(PEER, Resets(3 * EMPTY_RESETS_TOGETHER_MAX, 0), 3.0)
    rates.keep([])
    for second in range(100):
        assert not rates.is_beyond(PEER, Resets(EMPTY_RESETS_PER_S_MAX * second, 0), float(second))


def test_a_client_whose_calls_time_out_is_left_alone() -> None:
    """A thousand per second for any time, and ten thousand at once, are permitted."""
    rates = ResetRates()
    for second in range(100):
        assert not rates.is_beyond(PEER, Resets(1_000 * second, 1_000 * second), float(second))
    assert not rates.is_beyond(PEER, Resets(100_000 + RESETS_TOGETHER_MAX, 100_000 + RESETS_TOGETHER_MAX), 100.0)
    rates.keep([])
    count, found = 0, False
    for second in range(20):
        count += 2 * RESETS_PER_S_MAX
        found = rates.is_beyond(PEER, Resets(count, count), float(second))
    assert found


def test_the_heaviest_connections_of_late_are_ended() -> None:
    """Bytes that a connection sent long ago do not count, and at least one is closed."""
    old = connection("10.0.0.1", 1, received_bytes=1_000_000)
    new = [connection("10.0.0.2", port, received_bytes=100) for port in range(1, 9)]
    chosen = heaviest([old, *new], {old.peer: 999_900})
    assert len(chosen) == 7
    assert heaviest([old], {}) == [old]
    assert heaviest([], {}) == []
