"""The driver between the protocol and a slow log."""

from types import SimpleNamespace
from typing import Any

import pytest

from ortoo.common.errors import Conflict
from ortoo.common.process.background import Background
from ortoo.common.process.clock import SystemClock
from ortoo.enode.disk.hard_state_file import StoredHardState
from ortoo.enode.replication.driver import Driver
from ortoo.enode.replication.protocol.events import (
    Action,
    AddLearner,
    Contradicted,
    FramesSent,
    HardStateSaved,
    LeaderProposed,
    RemoveReplica,
    RequestElection,
    SendFrames,
    Tick,
    TransferLeadership,
    WriteFrames,
)
from ortoo.enode.replication.protocol.identity import Configuration, HardState
from ortoo.enode.replication.protocol.log_summary import ConfigurationFrame, LogSummary
from ortoo.enode.replication.protocol.messages import (
    AppendAck,
    HeartbeatResponse,
    LogMatched,
    LogMatchRequest,
    RequestVote,
    StaleEpoch,
)
from ortoo.enode.replication.state_comparison import StateComparison
from tests.unit.enode.replication.protocol.test_replica import FOUR, LATER_S, ONE, THREE, THREE_REPLICAS, TWO, Run, beat


class Stopped(SystemClock):
    """A clock that stands still until it is set."""

    at_s = LATER_S

    def monotonic_s(self) -> float:
        """The time that was set."""
        return self.at_s


def whole(ship: SendFrames) -> list[bytes]:
    """All frames to send are in memory."""
    return [bytes(ship.limit - ship.begin)]


def leading(clock: Stopped | None = None) -> tuple[Driver, Any]:
    """A driver whose replica leads a set of three, and its log, whose work has not started."""
    run = Run()
    run.lead()
    run.followed()
    return driving(run, clock or Stopped())


def following(clock: Stopped) -> Driver:
    """A driver whose replica follows."""
    run = Run()
    run.follow()
    return driving(run, clock)[0]


def driving(run: Run, clock: Stopped) -> tuple[Driver, Any]:
    """A driver and its log, whose work has not started."""
    appender = SimpleNamespace(check_hanging=lambda: "")
    engine = SimpleNamespace(appender=appender, committer=SimpleNamespace(), housekeeping=SimpleNamespace())
    log: Any = SimpleNamespace(engine=engine, bytes=SimpleNamespace(cached_frames=whole), commit=lambda position: None)
    log.report_progress = lambda: None
    membership: Any = SimpleNamespace(stored=StoredHardState(ONE.replica), may_defer=lambda reign, others: False)
    background = Background("test")
    return Driver(log, run.member, membership, lambda to, message: None, background, clock, StateComparison()), log


async def test_a_change_of_the_replicas_that_waits_for_the_log_is_the_only_one() -> None:
    """Other appends meanwhile do not admit a second change, which would not include the first."""
    driver, log = leading()
    driver.request(AddLearner(FOUR.replica))
    log.on_appended(20, ())
    with pytest.raises(Conflict, match="retry in a moment"):
        driver.request(RemoveReplica(THREE.replica))
    log.on_appended(30, (ConfigurationFrame(30, Configuration(THREE_REPLICAS.voters, (FOUR.replica,))),))
    with pytest.raises(Conflict, match="not committed"):
        driver.request(RemoveReplica(THREE.replica))


async def test_nobody_hands_over_to_a_replica_that_is_gone() -> None:
    """It may have the whole log, but would not get the request to lead, so an answering replica is chosen."""
    clock = Stopped()
    driver, _ = leading(clock)
    for word in (
        LogMatchRequest(1, THREE, 1, 0),
        LogMatched(1, THREE, 1, 0, 0),
        FramesSent(THREE, 1, 10),
        AppendAck(1, THREE, 1, 10),
    ):
        driver.post(word)
    assert driver.most_complete_voter() == TWO.replica
    clock.at_s += 0.9
    driver.post(Tick())
    clock.at_s += 0.1
    driver.post(HeartbeatResponse(1, THREE, driver.replica.round_count, 1, 10))
    assert driver.most_complete_voter() == THREE.replica
    with pytest.raises(Conflict, match="replica 2 does not answer"):
        driver.request(TransferLeadership(TWO.replica))
    assert driver.replica.may_append()


async def test_nobody_is_asked_for_above_an_epoch_whose_leader_is_followed() -> None:
    """A late candidate requests an election above the others' epoch; then it learns the leader of that epoch."""
    clock = Stopped()
    driver = following(clock)
    clock.at_s += 2.0
    for event in (LeaderProposed(4, ONE.replica), HardStateSaved(HardState(4, ONE)), StaleEpoch(9)):
        driver.post(event)
    assert driver.current_election_request() == RequestElection(ONE.replica, 9)
    driver.post(RequestVote(9, TWO))
    assert driver.current_election_request() == RequestElection(ONE.replica, 9), "the other one may not win"
    driver.post(beat(TWO, 9))
    assert driver.current_election_request() is None
    assert driver.election_request is None


async def test_a_leader_in_doubt_is_there_until_its_successor_leads() -> None:
    """In a set of two no other replica can vote for the successor, and an opening replica does not vote for long."""
    to_come: list[Any] = [RequestVote(2, TWO), HardStateSaved(HardState(2, TWO)), beat(TWO, 2)]

    class Passing(Stopped):
        async def sleep(self, seconds: float) -> None:
            if driver.leading_epoch is None:
                driver.post(to_come.pop(0))

    async def flushed() -> None:
        pass

    driver, log = leading(Passing())
    driver.leading_epoch = 1
    log.pause = log.follow = lambda reason: None
    log.engine.appender.flush = flushed
    await driver._refold()
    assert not to_come
    assert driver.ended.done()


@pytest.mark.parametrize("action", [Contradicted(THREE, 10, 20), WriteFrames(10, 10, ())])
async def test_no_action_is_executed_after_the_log_has_ended(action: Action) -> None:
    """The driver waits for an action, the disk fails, and an action arrives. It has no effect."""
    driver, log = leading()
    written: list[int] = []

    async def write(begin: int, frames: object) -> None:
        written.append(begin)

    async def next_action() -> tuple[Action, LogSummary]:
        log.engine.appender.on_failed("the disk failed")
        return action, driver.replica.log

    log.write = write
    driver._log_actions.get = next_action  # type: ignore[method-assign]
    await driver._run_log_actions()
    assert driver.ended.result() == "the disk failed"
    assert not written
