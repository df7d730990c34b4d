"""The state of a leader after it has stepped down."""

from ortoo.enode.replication.protocol.events import (
    Appended,
    Committed,
    Flushed,
    HandOver,
    Lead,
    LeaderSilent,
    Proposed,
    ReignSaved,
    Shipped,
    Tick,
)
from ortoo.enode.replication.protocol.identity import Tail
from ortoo.enode.replication.protocol.log_summary import EpochFrame
from ortoo.enode.replication.protocol.messages import Ack, HeartbeatAnswer, MatchAsk, Matched, Promise
from ortoo.enode.replication.protocol.roles import Idle
from tests.unit.enode.replication.protocol.test_member import LATER_S, ONE, THREE, TWO, Run


def test_a_leader_that_has_handed_over_misses_a_leader_when_the_others_do() -> None:
    """With one more silent replica it would be a majority of three, and a leader above the successor be proposed."""
    run = Run()
    run.lead()
    run.followed()
    run.now_s = LATER_S + 0.9
    run(Tick(), HeartbeatAnswer(1, TWO, 2, 1, 10), HandOver(TWO.member))
    assert isinstance(run.member.role, Idle)
    run.now_s = LATER_S + 1.8
    assert LeaderSilent() not in run(Tick())
    run.now_s = LATER_S + 2.0
    assert LeaderSilent() in run(Tick())


def test_who_leads_an_epoch_again_is_not_answered_for_what_it_asked_before() -> None:
    """It transferred leadership and is proposed again: the earlier lease has ended, and others may lead."""
    run = Run()
    run.lead()
    run.followed()
    run(HandOver(TWO.member), Proposed(1, ONE.member), ReignSaved(run.member.reign))
    run(Promise(1, THREE, Tail(0, 0), is_electable=True), Appended(20, (EpochFrame(10, 20, 1),)), Flushed(0, 20))
    run(MatchAsk(1, THREE, 1, 0), Matched(1, THREE, 1, 0, 0), Shipped(THREE, 1, 20))
    assert run(Ack(1, THREE, 1, 20)) == (Committed(20),)
    assert run(HeartbeatAnswer(1, TWO, 1, 1, 10)) == ()
    assert not run.member.may_read(run.now_s)
    assert run(HeartbeatAnswer(1, THREE, 2, 1, 20)) == (Lead(1),)
    assert run.member.may_read(run.now_s)
