"""A lagging replica catches up as fast as it can, and yields to the clients' sends."""

import pytest

from ortoo.client import ProducerSettings
from ortoo.enode.app import RunningEnode
from ortoo.enode.replication import driver, log_bytes
from ortoo.testing.simulation.cluster.roles import ReplicaMachine
from tests.simulation.scripted_cluster import ScriptedCluster, play
from tests.simulation.test_take_over import THREE, leader, topic

LATE_BYTES, PART_BYTES, BYTES_PER_S = 50_000, 20_000, 100_000
BODIES = [b"%02d" % number * 10_000 for number in range(50)]


def appended(machine: ReplicaMachine) -> int:
    """The end of a replica's log."""
    assert isinstance(machine.running, RunningEnode)
    of = machine.running.process.driver
    return of.replica.log.appended if of is not None else 0


@pytest.mark.parametrize("is_busy", [False, True])
def test_who_is_late_gives_way_to_clients(monkeypatch: pytest.MonkeyPatch, is_busy: bool) -> None:
    """A megabyte arrives within 2 s without sends; beside sends, at most at the speed that lets them pass."""
    monkeypatch.setattr(driver, "CATCH_UP_MIN_BYTES", LATE_BYTES)
    monkeypatch.setattr(driver, "CATCH_UP_BYTES_PER_S", BYTES_PER_S)
    monkeypatch.setattr(log_bytes, "PART_BYTES", PART_BYTES)

    async def script(stage: ScriptedCluster) -> None:
        async with stage.connect("app") as client:
            await topic(stage, client)
            first = await leader(stage)
            late = next(one for one in stage.cluster.replicas if one is not first)
            late.kill()
            async with client.producer("t", ProducerSettings(linger_ms=1)) as producer:
                for body in BODIES:
                    await producer.send(body)
                await stage.clock.sleep(1.0)
                late.start()
                begun_s = stage.clock.monotonic_s()
                while late.running is None or appended(late) < appended(first):
                    if is_busy:
                        await producer.send(b"small")
                    await stage.clock.sleep(0.05)
                took_s = stage.clock.monotonic_s() - begun_s
        least_s = (sum(map(len, BODIES)) - LATE_BYTES) / BYTES_PER_S
        assert least_s <= took_s < 2 * least_s if is_busy else took_s < 2.0

    play(script, shape=THREE)
