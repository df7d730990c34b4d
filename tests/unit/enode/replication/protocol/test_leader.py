"""The state of a leader after it has stepped down."""

from ortoo.enode.replication.protocol.events import (
    ApplyCommitted,
    BecomeLeader,
    Flushed,
    FramesSent,
    HardStateSaved,
    LeaderProposed,
    LogAppended,
    ReportLeaderSilent,
    Tick,
    TransferLeadership,
)
from ortoo.enode.replication.protocol.identity import Tail
from ortoo.enode.replication.protocol.log_summary import EpochFrame
from ortoo.enode.replication.protocol.messages import AppendAck, HeartbeatResponse, LogMatched, LogMatchRequest, Vote
from ortoo.enode.replication.protocol.roles import Idle
from tests.unit.enode.replication.protocol.test_replica import LATER_S, ONE, THREE, TWO, Run


def test_a_leader_that_has_handed_over_misses_a_leader_when_the_others_do() -> None:
    """With one more silent replica it would be a majority of three, and a leader above the successor be proposed."""
    run = Run()
    run.lead()
    run.followed()
    run.now_s = LATER_S + 0.9
    run(Tick(), HeartbeatResponse(1, TWO, 2, 1, 10), TransferLeadership(TWO.replica))
    assert isinstance(run.member.role, Idle)
    run.now_s = LATER_S + 1.8
    assert ReportLeaderSilent() not in run(Tick())
    run.now_s = LATER_S + 2.0
    assert ReportLeaderSilent() in run(Tick())


def test_who_leads_an_epoch_again_is_not_answered_for_what_it_asked_before() -> None:
    """It transferred leadership and is proposed again: the earlier lease has ended, and others may lead."""
    run = Run()
    run.lead()
    run.followed()
    run(TransferLeadership(TWO.replica), LeaderProposed(1, ONE.replica), HardStateSaved(run.member.hard_state))
    run(Vote(1, THREE, Tail(0, 0), is_electable=True), LogAppended(20, (EpochFrame(10, 20, 1),)), Flushed(0, 20))
    run(LogMatchRequest(1, THREE, 1, 0), LogMatched(1, THREE, 1, 0, 0), FramesSent(THREE, 1, 20))
    assert run(AppendAck(1, THREE, 1, 20)) == (ApplyCommitted(20),)
    assert run(HeartbeatResponse(1, TWO, 1, 1, 10)) == ()
    assert not run.member.may_read(run.now_s)
    assert run(HeartbeatResponse(1, THREE, 2, 1, 20)) == (BecomeLeader(1),)
    assert run.member.may_read(run.now_s)
