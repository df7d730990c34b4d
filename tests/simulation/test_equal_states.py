"""Replicas of an enode fold the same state from the same log, and detect when one of them does not."""

from dataclasses import replace
from unittest import mock

from structlog.testing import capture_logs

from ortoo.common.errors import Overloaded
from ortoo.enode import log_events
from ortoo.enode.app import RunningEnode
from ortoo.enode.leadership import open_log
from ortoo.enode.replication.driver import Driver
from ortoo.testing.simulation.cluster.roles import ReplicaMachine
from ortoo.verification.simulation.run.agreement import differences
from tests.simulation.scripted_cluster import ScriptedCluster, play
from tests.simulation.test_take_over import THREE, leader, sent, topic


def driver(machine: ReplicaMachine) -> Driver:
    """The driver of a running replica."""
    assert isinstance(machine.running, RunningEnode)
    found = machine.running.process.driver
    assert found is not None
    return found


async def agreed(stage: ScriptedCluster) -> None:
    """Wait until all replicas have the same log and the same state."""
    async with stage.connect("waiting"):
        for _ in range(1_000):
            if not differences(stage.cluster.replicas):
                return
            await stage.clock.sleep(0.05)
    raise AssertionError(differences(stage.cluster.replicas))


def test_idle_producers_and_old_ids_are_forgotten_by_all_members_at_once() -> None:
    """Entries that the leader calls idle by its settings and its clock are removed by all, whatever their clocks."""

    async def script(stage: ScriptedCluster) -> None:
        async with stage.connect("app") as client:
            await topic(stage, client)
            await sent(client, 3, [])
            first = await leader(stage)
            for machine in stage.cluster.replicas:
                if machine is not first:
                    machine.clock.jump(-30_000)
            await agreed(stage)
            assert all(len(driver(one).log.engine.state.windows) == 1 for one in stage.cluster.replicas)
            housekeeping = driver(first).log.engine.housekeeping
            housekeeping.settings = replace(housekeeping.settings, producer_idle_ms=1)
            await stage.clock.sleep(0.1)
            await housekeeping.expire_producers_and_ids()
            await agreed(stage)
            assert all(len(driver(one).log.engine.state.windows) == 0 for one in stage.cluster.replicas)

    play(script, shape=THREE)


def test_a_member_whose_state_is_not_the_leaders_says_so_and_folds_again() -> None:
    """With the next checkpoint the difference is found, named and repaired; the one after it finds none."""

    async def script(stage: ScriptedCluster) -> None:
        async with stage.connect("app") as client:
            await topic(stage, client)
            await sent(client, 3, [])
            first = await leader(stage)
            await agreed(stage)
            other = next(one for one in stage.cluster.replicas if one is not first)
            wrong = driver(other)
            topic_id = wrong.log.engine.state.topics.all()[0].topic_id
            wrong.log.engine.state.offsets.set_floor(topic_id, "g", 0, 2)
            assert "offsets" in differences(stage.cluster.replicas)
            running = other.running
            assert isinstance(running, RunningEnode)
            with capture_logs() as lines:
                await driver(first).log.engine.housekeeping.checkpoint()
                while running.process.driver in (wrong, None):
                    await stage.clock.sleep(0.05)
            told = [one for one in lines if one["event"] == log_events.REPLICA_STATE_MISMATCH.name]
            assert ["offsets" in one["tables"] for one in told] == [True]
            assert [one.name for one in running.process.findings() if one] == ["state mismatch"]
            await agreed(stage)
            await driver(first).log.engine.housekeeping.checkpoint()
            while running.process.comparison.mismatches:
                await stage.clock.sleep(0.05)
            assert first is await leader(stage)

    play(script, shape=THREE)


def test_a_member_that_leads_before_it_has_folded_again_does_so_all_the_same() -> None:
    """It stays in doubt, although it agrees with itself. The others differ from it, and fold again once each."""

    async def script(stage: ScriptedCluster) -> None:
        async with stage.connect("app") as client:
            await topic(stage, client)
            await sent(client, 3, [])
            first = await leader(stage)
            await agreed(stage)
            others = [one for one in stage.cluster.replicas if one is not first]
            other = max(others, key=lambda one: driver(one).replica.identity.replica.number)  # it waits the longest
            wrong = driver(other)
            wrong.log.engine.state.offsets.set_floor(wrong.log.engine.state.topics.all()[0].topic_id, "g", 0, 2)
            await driver(first).log.engine.housekeeping.checkpoint()
            while not wrong.comparison.mismatches:
                await stage.clock.sleep(0.05)
            await driver(first).transfer_leadership(wrong.replica.identity.replica)
            while wrong.leading_epoch is None:
                await stage.clock.sleep(0.05)
            await wrong.log.engine.housekeeping.checkpoint()
            assert wrong.comparison.mismatches == 1
            running = other.running
            assert isinstance(running, RunningEnode)
            while running.process.driver in (wrong, None):
                await stage.clock.sleep(0.05)
            await agreed(stage)
            lives_of = {one.name: driver(one) for one in stage.cluster.replicas}
            await stage.clock.sleep(5.0)
            assert {one.name: driver(one) for one in stage.cluster.replicas} == lives_of

    play(script, shape=THREE)


def test_a_full_disk_ends_no_process_that_opens_its_log() -> None:
    """It waits for space, like a process whose log is open."""

    async def script(stage: ScriptedCluster) -> None:
        async with stage.connect("app") as client:
            await topic(stage, client)
            await sent(client, 3, [])
            first = await leader(stage)
            other = next(one for one in stage.cluster.replicas if one is not first)
            driver(other)._end_log("for a test")
            full = Overloaded("the disk is full")
            with mock.patch.object(open_log, "open_replicated_log", side_effect=full):
                await stage.clock.sleep(3.0)
            await agreed(stage)

    play(script, shape=THREE)
