"""The end of a leader's term, and its state afterwards."""

from ortoo.enode.replication.protocol.events import (
    ApplyCommitted,
    BecomeLeader,
    Flushed,
    FramesSent,
    HardStateSaved,
    LeaderProposed,
    LogAppended,
    ReportLeaderSilent,
    RequestElection,
    Send,
    SteppedDown,
    StorageChanged,
    Tick,
    TransferLeadership,
)
from ortoo.enode.replication.protocol.identity import Tail
from ortoo.enode.replication.protocol.log_summary import EpochFrame
from ortoo.enode.replication.protocol.messages import (
    AppendAck,
    HeartbeatResponse,
    LogMatched,
    LogMatchRequest,
    TimeoutNow,
    Vote,
)
from ortoo.enode.replication.protocol.roles import Candidate, Idle, Leader
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
    """It lost its majority and is proposed again: the earlier lease has ended, and others may lead."""
    run = Run()
    run.lead()
    run.followed()
    run.now_s += run.member.limits.leader_timeout_s
    run(Tick(), LeaderProposed(1, ONE.replica), HardStateSaved(run.member.hard_state))
    run(Vote(1, THREE, Tail(0, 0), is_electable=True), LogAppended(20, (EpochFrame(10, 20, 1),)), Flushed(0, 20))
    run(LogMatchRequest(1, THREE, 1, 0), LogMatched(1, THREE, 1, 0, 0), FramesSent(THREE, 1, 20))
    assert run(AppendAck(1, THREE, 1, 20)) == (ApplyCommitted(20),)
    assert run(HeartbeatResponse(1, TWO, 1, 1, 10)) == ()
    assert not run.member.may_read(run.now_s)
    assert run(HeartbeatResponse(1, THREE, 2, 1, 20)) == (BecomeLeader(1),)
    assert run.member.may_read(run.now_s)


def test_a_replica_that_released_an_epoch_never_leads_it_again() -> None:
    """A late release of that epoch would end a lease of its second term."""
    run = Run()
    run.lead()
    run.followed()
    run(TransferLeadership(TWO.replica), LeaderProposed(1, ONE.replica))
    assert isinstance(run.member.role, Idle)
    run(LeaderProposed(2, ONE.replica))
    assert isinstance(run.member.role, Candidate)


def test_a_leader_with_a_silent_disk_resigns_although_followers_answer() -> None:
    """The successor is a replica that has the frames which the own disk does not confirm; no disk is waited for."""
    run = Run()
    run.lead()
    run.followed()
    run(LogMatchRequest(1, THREE, 1, 0), LogMatched(1, THREE, 1, 0, 0), FramesSent(THREE, 1, 10))
    run(LogAppended(20), FramesSent(TWO, 1, 20), FramesSent(THREE, 1, 20))
    run(AppendAck(1, TWO, 1, 20), AppendAck(1, THREE, 1, 20), Tick())
    assert run.member.log.committed == 20
    for _ in range(7):
        run.now_s += 0.125
        run(Tick(), *(HeartbeatResponse(1, one, run.member.round_count, 1, 20) for one in (TWO, THREE)))
    assert isinstance(run.member.role, Leader)
    run.now_s += 0.125
    done = run(Tick())
    assert done[0] == SteppedDown(1)
    assert RequestElection(TWO.replica, 1) in done
    assert Send(TWO.replica, TimeoutNow(2, TWO.replica)) in done


def test_a_leader_with_a_slow_disk_continues() -> None:
    """Each confirmation of its disk begins the time again, even if the disk never catches up."""
    run = Run()
    run.lead()
    run.followed()
    run(LogMatchRequest(1, THREE, 1, 0), LogMatched(1, THREE, 1, 0, 0), FramesSent(THREE, 1, 10))
    for end in range(20, 60, 10):
        run(LogAppended(end), FramesSent(TWO, 1, end), FramesSent(THREE, 1, end))
        run(AppendAck(1, TWO, 1, end), AppendAck(1, THREE, 1, end))
        for _ in range(5):
            run.now_s += 0.125
            run(Tick(), *(HeartbeatResponse(1, one, run.member.round_count, 1, end) for one in (TWO, THREE)))
        run(Flushed(0, end - 5))
    assert isinstance(run.member.role, Leader)


def test_a_leader_with_a_full_disk_resigns_for_a_replica_with_room() -> None:
    """It waits for a second, because retention may free space. Without a majority of disks with room it stays."""
    run = Run()
    run.lead()
    run.followed()
    run.followed(THREE)
    run(StorageChanged(can_store=False))

    def answered(*, by_two: bool) -> None:
        number = run.member.round_count
        run(HeartbeatResponse(1, TWO, number, 1, 10, cannot_store=not by_two))
        run(HeartbeatResponse(1, THREE, number, 1, 10), Tick())

    for _ in range(16):
        run.now_s += 0.125
        answered(by_two=False)
    assert isinstance(run.member.role, Leader)
    run(StorageChanged(can_store=True), StorageChanged(can_store=False))
    for _ in range(7):
        run.now_s += 0.125
        answered(by_two=True)
    assert isinstance(run.member.role, Leader)
    run.now_s += 0.125
    answered(by_two=True)
    assert isinstance(run.member.role, Idle)


def test_silence_is_counted_from_the_heartbeat_that_was_answered() -> None:
    """An answer that arrives late proves nothing about the time after its heartbeat was sent."""
    run = Run()
    run.lead()
    run.followed()
    run.now_s = LATER_S + 0.5
    run(Tick())
    run.now_s = LATER_S + 0.9
    run(HeartbeatResponse(1, TWO, 2, 1, 10), Tick())
    run.now_s = LATER_S + 1.4
    run(Tick())
    assert isinstance(run.member.role, Leader)
    run.now_s = LATER_S + 1.5
    assert run(Tick())[0] == SteppedDown(1)
