"""The reports of a replica."""

from functools import partial
from types import SimpleNamespace
from typing import Any

from ortoo.enode.leadership.replica_process import ReplicaProcess
from ortoo.enode.replication.protocol.events import FramesSent, HardStateSaved, Tick
from ortoo.enode.replication.protocol.identity import HardState
from ortoo.enode.replication.protocol.messages import (
    HeartbeatResponse,
    LogMatched,
    LogMatchRequest,
    RequestVote,
    TimeoutNow,
)
from ortoo.enode.replication.protocol.roles import Candidate
from tests.unit.enode.replication.protocol.test_replica import LATER_S, ONE, TWO, Run, beat
from tests.unit.enode.replication.test_driver import Stopped, driving, following


async def test_whom_a_leader_has_handed_over_to_misses_none_while_it_stands() -> None:
    """Name servers would assume that it cannot win and that the stopping leader has ended, and propose again."""
    clock = Stopped()
    driver = following(clock)
    clock.at_s = LATER_S + 0.9
    driver.post(TimeoutNow(2, ONE.replica))
    assert isinstance(driver.replica.role, Candidate)
    assert not report_of(driver).is_leader_silent
    clock.at_s = LATER_S + 1.1
    driver.post(Tick())
    assert report_of(driver).is_leader_silent, "there is no leader, and it gets no message for too long"


async def test_who_stops_while_it_is_about_to_lead_hands_over_as_soon_as_it_does() -> None:
    """Otherwise there would be no leader for a second: it has the votes of a majority, and the leader stepped down."""
    run = Run()
    run.lead()
    to_come: list[list[Any]] = [
        [
            LogMatchRequest(1, TWO, 1, 0),
            LogMatched(1, TWO, 1, 0, 0),
            FramesSent(TWO, 1, 10),
            HeartbeatResponse(1, TWO, 1, 1, 10),
        ],
        [RequestVote(2, TWO), HardStateSaved(HardState(2, TWO)), beat(TWO, 2)],
    ]

    class Passing(Stopped):
        async def sleep(self, seconds: float) -> None:
            for event in to_come.pop(0):
                driver.post(event)
            driver.leading_epoch = 1 if driver.replica.may_append() else None
            driver.election_request = None

    async def nothing() -> None:
        pass

    driver, log = driving(run, Passing())
    log.pause = log.follow = lambda reason: None
    log.engine.appender.flush = nothing
    reports = SimpleNamespace(report_now=lambda: None)
    process: Any = SimpleNamespace(driver=driver, clock=driver.clock, reports=reports, is_alone=False)
    process._transfer_leadership = partial(ReplicaProcess._transfer_leadership, process)
    await ReplicaProcess.leave(process)
    assert not to_come


def report_of(driver: Any) -> Any:
    """The report of its process to name servers."""
    stored = SimpleNamespace(set_id="set", replica=ONE.replica, incarnation=1, made_from="")
    process: Any = SimpleNamespace(
        membership=SimpleNamespace(stored=stored),
        driver=driver,
        settings=SimpleNamespace(name="e", role="", advertised_address=""),
        reports=SimpleNamespace(is_waiting=False),
        server=SimpleNamespace(cluster_address="", address="h:1"),
        replica_address="h:2",
    )
    return ReplicaProcess._report(process)
