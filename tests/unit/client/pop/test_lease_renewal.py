"""Leases of a pop consumer while an enode is down, and when the consumer is closed."""

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from ortoo.client.core.closed import ConsumerClosed
from ortoo.client.core.connection import CALL_ATTEMPTS_MAX
from ortoo.client.core.received import ReceivedBatch
from ortoo.client.pop.consumer import CLOSE_TIMEOUT_S, PopConsumer
from ortoo.client.pop.popped import PopLease
from ortoo.client.pop.settings import PopSettings
from ortoo.common.errors import Unavailable
from ortoo.common.process.background import Background
from ortoo.common.process.clock import Clock
from ortoo.common.process.randomness import Randomness
from ortoo.common.process.retry import RetryLog
from ortoo.verification.time.virtual_clock import VirtualClock
from ortoo.verification.time.virtual_time import in_virtual_time, running_clock

LEASE_S = 3.0
ENODES = ("enode-0", "enode-1")


class Renewals:
    """Records renewals; one enode is down until a time, and fails immediately or does not answer."""

    def __init__(self, clock: VirtualClock, away: str, away_until_s: float, *, is_frozen: bool = False) -> None:
        self.renewed_s: dict[str, list[float]] = {handle: [] for handle in ENODES}
        self._clock = clock
        self._away = away
        self._away_until_s = away_until_s
        self._is_frozen = is_frozen
        self.gone: tuple[set[str], set[tuple[str, int]]] = (set(), set())

    async def renew(
        self, receipts: Sequence[tuple[str, Sequence[int]]], invisible_ms: int, *, timeout_s: float
    ) -> tuple[set[str], set[tuple[str, int]]]:
        """Record the time of each renewal."""
        handles = [handle for handle, _ in receipts]
        now_s = self._clock.monotonic_s()
        if self._away in handles and now_s < self._away_until_s:
            await self._clock.sleep(CALL_ATTEMPTS_MAX * timeout_s if self._is_frozen else 0)
            raise Unavailable(f"{self._away} is away")
        for handle in handles:
            self.renewed_s[handle].append(now_s)
        return self.gone

    async def drain(self) -> None:
        """Nothing is in flight."""


def consumer_at(clock: Clock) -> PopConsumer:
    """A consumer without a server."""
    connection: Any = SimpleNamespace(clock=clock, client_id="c", randomness=Randomness(1), retry_log=RetryLog(clock))
    return PopConsumer(connection, "g", "t", "*", PopSettings(invisible_ms=LEASE_S * 1000))


def lease_on(enode: str, now_s: float) -> PopLease:
    """A lease of one message, whose handle is the enode's name."""
    batch: Any = SimpleNamespace(queue=SimpleNamespace(enode=enode), offset=lambda row: row)
    held: ReceivedBatch = batch
    return PopLease(enode, held, {}, range(1), now_s)


@pytest.mark.parametrize("is_frozen", [False, True])
def test_one_enode_that_is_away_once_ends_no_lease(is_frozen: bool) -> None:
    """Leases of the other enode are renewed on time, and those of this enode are retried until they end."""
    clock = VirtualClock()

    async def scenario() -> None:
        consumer = consumer_at(clock)
        begun_s = clock.monotonic_s()
        renewals: Any = Renewals(clock, "enode-0", begun_s + LEASE_S * 0.6, is_frozen=is_frozen)
        consumer._calls = renewals
        consumer._leases = dict.fromkeys(lease_on(enode, begun_s) for enode in ENODES)
        async with consumer:
            await clock.sleep(4 * LEASE_S)
            consumer._leases.clear()
        for enode, times_s in renewals.renewed_s.items():
            gaps_s = [after - before for before, after in zip([begun_s, *times_s], times_s, strict=False)]
            assert times_s, enode
            is_waited_for = is_frozen and enode == "enode-0"
            assert max(gaps_s) < LEASE_S or is_waited_for, f"the lease on {enode} ended"
        assert renewals.renewed_s["enode-1"][0] - begun_s <= LEASE_S / 2

    clock.run(scenario, limit_s=60)


def test_what_is_another_consumers_by_now_is_renewed_no_more() -> None:
    """A message that was delivered again, and an unknown lease."""
    clock = VirtualClock()

    async def scenario() -> None:
        consumer, now_s = consumer_at(clock), clock.monotonic_s()
        renewals: Any = Renewals(clock, "", 0)
        renewals.gone = ({"enode-0"}, {("enode-1", 0)})
        consumer._calls = renewals
        consumer._leases = dict.fromkeys(lease_on(enode, now_s) for enode in ENODES)
        async with consumer:
            await clock.sleep(4 * LEASE_S)
            assert not consumer._leases
        assert [len(times) for times in renewals.renewed_s.values()] == [1, 1]

    clock.run(scenario, limit_s=60)


class Returns:
    """Records released messages; one enode stays down and fails late."""

    def __init__(self, clock: VirtualClock) -> None:
        self.asked: list[list[str]] = []
        self._clock = clock

    async def nack(self, request: Any) -> list[int]:
        """Record the messages that were released together."""
        self.asked.append(sorted(one.receipt_handle for one in request.receipts))
        if "enode-0" in self.asked[-1]:
            await self._clock.sleep(10.0)
            raise Unavailable("enode-0 is away")
        return []

    async def drain(self) -> None:
        """Nothing is in flight."""


def test_leaving_waits_once_for_an_enode_that_is_away() -> None:
    """One wait, independent of the number of its leases; messages of other enodes are released together."""
    clock = VirtualClock()

    async def scenario() -> None:
        consumer, now_s = consumer_at(clock), clock.monotonic_s()
        returns: Any = Returns(clock)
        consumer._calls = returns
        leases = [lease_on(enode, now_s) for enode in ENODES for _ in range(300)]
        async with consumer:
            consumer._leases = dict.fromkeys(leases)
        assert [(handles[0], len(handles)) for handles in returns.asked] == [
            ("enode-0", 256), ("enode-1", 256), ("enode-1", 44)
        ]  # fmt: skip
        assert clock.monotonic_s() - now_s < 11.0

    clock.run(scenario, limit_s=60)


@in_virtual_time
async def test_leaving_has_a_limit() -> None:
    """A server that does not answer holds up neither the last acknowledgements nor the release of messages for long."""
    clock = running_clock()
    consumer, now_s = consumer_at(clock), clock.monotonic_s()
    never = asyncio.get_running_loop().create_future
    silent: Any = SimpleNamespace(drain=never, nack=lambda _: never(), renew=lambda *_, **__: never())
    consumer._calls = silent
    async with consumer:
        consumer._leases = dict.fromkeys([lease_on("enode-0", now_s)])
    assert clock.monotonic_s() - now_s <= 2 * CLOSE_TIMEOUT_S + 1


def test_what_comes_for_a_consumer_that_was_left_goes_back() -> None:
    """A concurrent pop fails because the consumer was closed, and its messages are released."""
    clock = VirtualClock()

    async def scenario() -> None:
        consumer, now_s = consumer_at(clock), clock.monotonic_s()
        returns: Any = Returns(clock)
        consumer._calls = returns

        async def late(*_: object) -> list[PopLease]:
            await clock.sleep(20.0)
            return [lease_on("enode-1", now_s)]

        consumer._pop_attempt = late  # type: ignore[assignment,method-assign]
        async with Background("test") as background:
            async with consumer:
                popping = background.spawn("pop", refused(consumer))
                await clock.sleep(1.0)
            assert returns.asked == []
            await popping
        assert returns.asked == [["enode-1"]]

    async def refused(consumer: PopConsumer) -> None:
        with pytest.raises(ConsumerClosed):
            await consumer.pop()

    clock.run(scenario, limit_s=60)
