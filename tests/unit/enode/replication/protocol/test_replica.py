"""The protocol of a single replica: its actions, their order, and the messages it accepts."""

from dataclasses import replace

import pytest

from ortoo.enode.replication.protocol.events import (
    Action,
    AddLearner,
    AppendConfiguration,
    AppendEpoch,
    ApplyCommitted,
    BecomeLeader,
    DeleteBelow,
    Event,
    Flushed,
    FramesSent,
    HardStateSaved,
    LeaderProposed,
    LogAppended,
    RejectRequest,
    RemoveReplica,
    ReportLeaderSilent,
    RequestElection,
    Reset,
    SaveHardState,
    Send,
    SendFrames,
    SteppedDown,
    Tick,
    TransferLeadership,
    Truncate,
    Truncated,
    WriteFrames,
)
from ortoo.enode.replication.protocol.identity import Configuration, HardState, Incarnation, ReplicaId, Tail
from ortoo.enode.replication.protocol.leader import deletable_below
from ortoo.enode.replication.protocol.log_summary import BeginFrame, ConfigurationFrame, EpochFrame, LogBase, LogSummary
from ortoo.enode.replication.protocol.messages import (
    AppendAck,
    Frames,
    Heartbeat,
    HeartbeatResponse,
    LeaseReleased,
    LogMatched,
    LogMatchRequest,
    LogMatchResponse,
    RequestVote,
    StaleEpoch,
    TimeoutNow,
    Vote,
)
from ortoo.enode.replication.protocol.replica import Replica, ReplicationLimits
from ortoo.enode.replication.protocol.roles import Candidate, Follower, Leader, Voter
from ortoo.enode.replication.protocol.step import step

ONE, TWO, THREE, FOUR = (Incarnation(ReplicaId(number, f"disk-{number}"), 1) for number in (1, 2, 3, 4))
THREE_REPLICAS = Configuration((ONE.replica, TWO.replica, THREE.replica))
LATER_S = 10.0


class Run:
    """A replica, and the actions of its last event."""

    def __init__(self, replicas: Configuration = THREE_REPLICAS, *, window_bytes: int = 1000) -> None:
        log = LogSummary().reset_to(LogBase(0, 0, replicas))
        self.member = Replica.initial(
            ONE,
            replace(log, truncations=0, is_truncating=False),
            HardState(),
            0.0,
            limits=ReplicationLimits(window_bytes=window_bytes),
        )
        self.now_s = LATER_S
        self.wanted: tuple[Action, ...] = ()

    def __call__(self, *events: Event) -> tuple[Action, ...]:
        """Handle events; returns the actions of the last one."""
        for event in events:
            self.member, self.wanted = step(self.member, event, self.now_s)
        return self.wanted

    def lead(self) -> None:
        """Lead epoch 1 with replica 2's vote; the EPOCH frame has 10 bytes and is flushed here."""
        self(LeaderProposed(1, ONE.replica))
        self(HardStateSaved(self.member.hard_state))
        if isinstance(self.member.role, Candidate):
            self(Vote(1, TWO, Tail(0, 0), is_electable=True))
        self(LogAppended(10, (EpochFrame(0, 10, 1),)), Flushed(0, 10))

    def followed(self, by: Incarnation = TWO, stream: int = 1) -> None:
        """Let a follower match and have the whole log of this leader."""
        end = self.member.log.appended
        self(
            LogMatchRequest(1, by, stream, 0),
            LogMatched(1, by, stream, 0, 0),
            FramesSent(by, stream, end),
            HeartbeatResponse(1, by, 1, stream, end),
        )

    def follow(self, leader: Incarnation = TWO, epoch: int = 1) -> None:
        """Follow a leader, matched, with an empty log."""
        self(beat(leader, epoch), HardStateSaved(self.member.hard_state))
        self(HardStateSaved(self.member.hard_state))
        self(LogMatchResponse(epoch, ONE, self.member.stream_count, 0, 0, LogBase(0, 0, THREE_REPLICAS)))
        self(Truncated(self.member.log.truncations))

    def frames(self, begin: int, end: int, *, epoch: int = 1, committed: int = 0) -> Frames:
        """Frames from the leader on this replica's stream."""
        marks = (EpochFrame(begin, begin + 1, epoch),) if self.member.log.history.last_epoch < epoch else ()
        return Frames(epoch, ONE, self.member.stream_count, begin, end, marks, committed, b"")


def beat(leader: Incarnation, epoch: int, *, committed: int = 0, appended: int = 0) -> Heartbeat:
    """A heartbeat to a follower without a stream."""
    return Heartbeat(epoch, leader, 1, committed, appended, 0, 0)


def messages(actions: tuple[Action, ...]) -> list[object]:
    """The messages sent by these actions."""
    return [one.message for one in actions if isinstance(one, Send)]


def test_a_sole_replica_leads_by_itself_and_commits_what_it_flushes() -> None:
    """It needs no votes and no lease, and its committed position is the flushed one."""
    run = Run(Configuration((ONE.replica,)))
    (save,) = run(Tick())
    assert isinstance(save, SaveHardState)
    assert run(HardStateSaved(save.hard_state)) == (AppendEpoch(1),)
    run(LogAppended(10, (EpochFrame(0, 10, 1),)))
    assert not run.member.may_append()
    assert run(Flushed(0, 10)) == (ApplyCommitted(10), BecomeLeader(1))
    assert run(LogAppended(30)) == ()
    assert run(Flushed(0, 30)) == (ApplyCommitted(30),)
    assert run.member.may_append()
    assert run.member.may_read(run.now_s + 3600)


def test_a_promise_is_said_when_it_is_saved_and_given_once() -> None:
    """The file is synced before the vote is sent. Other candidates get no vote in this epoch or a lower one."""
    run = Run()
    assert run(RequestVote(5, TWO)) == (SaveHardState(HardState(5, TWO)),)
    assert run(HardStateSaved(HardState(5, TWO))) == (Send(TWO.replica, Vote(5, ONE, Tail(0, 0), is_electable=True)),)
    assert run(RequestVote(5, TWO)) == run.wanted
    assert run(RequestVote(5, THREE)) == ()
    assert run(RequestVote(4, THREE)) == (Send(THREE.replica, StaleEpoch(5)),)
    assert isinstance(run.member.role, Voter)


def test_an_emptied_disk_does_not_vote() -> None:
    """A vote is of a disk: votes of disks outside the configuration do not count."""
    run = Run()
    run(LeaderProposed(1, ONE.replica))
    run(HardStateSaved(run.member.hard_state))
    emptied = Incarnation(ReplicaId(2, "another"), 1)
    assert run(Vote(1, emptied, Tail(0, 0), is_electable=True)) == ()
    assert run(Vote(1, TWO, Tail(0, 0), is_electable=True)) == (AppendEpoch(1),)


def test_a_candidate_gives_way_to_who_has_more() -> None:
    """A voter that is ahead is requested as leader; if it lost these frames, its vote just does not count."""
    run = Run()
    run(LeaderProposed(1, ONE.replica))
    run(HardStateSaved(run.member.hard_state))
    assert run(Vote(1, THREE, Tail(1, 10), is_electable=False)) == ()
    assert run(Vote(1, TWO, Tail(1, 5), is_electable=True)) == (RequestElection(TWO.replica, 1),)
    assert run(Vote(1, TWO, Tail(0, 0), is_electable=True)) == ()


def test_a_leader_serves_when_its_epoch_frame_is_committed_and_it_may_read() -> None:
    """Its own flush and older frames are not enough, nor is the committed frame before it may read."""
    run = Run()
    run.lead()
    assert not run.member.may_append()
    run(LogMatchRequest(1, TWO, 1, 0), LogMatched(1, TWO, 1, 0, 0), FramesSent(TWO, 1, 10))
    assert run(AppendAck(1, TWO, 1, 9)) == ()
    assert run(AppendAck(1, TWO, 1, 10)) == (ApplyCommitted(10),)
    assert not run.member.may_append()
    assert not run.member.may_read(run.now_s)
    assert run(HeartbeatResponse(1, TWO, 1, 1, 10)) == (BecomeLeader(1),)
    assert run.member.may_append()
    assert run.member.may_read(run.now_s)


def test_who_is_matched_hears_the_last_beat_again() -> None:
    """The first one came before the follower's vote was on disk and got no answer; the next would be a round late."""
    run = Run()
    run.lead()
    again = Heartbeat(1, ONE, 1, 0, 10, TWO.incarnation, 1)
    assert messages(run(LogMatchRequest(1, TWO, 1, 0), LogMatched(1, TWO, 1, 0, 0))) == [again]


def test_a_follower_that_claims_too_much_releases_nothing() -> None:
    """Frames not sent on the stream do not count, nor do unmatched or other streams."""
    run = Run()
    run.lead()
    assert run(LogMatchRequest(1, TWO, 1, 0), AppendAck(1, TWO, 1, 1 << 60)) == ()
    assert run(LogMatched(1, TWO, 1, 1 << 60, 1 << 60)) == ()
    run(LogMatched(1, TWO, 1, 0, 1 << 60))
    assert run(AppendAck(1, TWO, 1, 1 << 60)) == ()
    assert run(AppendAck(1, TWO, 2, 10)) == ()
    assert run(HeartbeatResponse(1, THREE, 1, 1, 10)) == ()
    assert run.member.log.committed == 0


def test_no_more_is_sent_than_the_window_beyond_what_is_acknowledged() -> None:
    """A follower that acknowledges nothing costs one window, whatever position it claims."""
    run = Run(window_bytes=30)
    run.lead()
    run(LogAppended(200))
    run(LogMatchRequest(1, TWO, 1, 0))
    assert run(LogMatched(1, TWO, 1, 0, 0))[1:] == (SendFrames(TWO, 1, 0, 30),)
    assert run(FramesSent(TWO, 1, 34)) == ()
    assert run(AppendAck(1, TWO, 1, 10)) == (SendFrames(TWO, 1, 34, 40), ApplyCommitted(10))
    assert run(FramesSent(TWO, 1, 40)) == ()
    assert run(AppendAck(1, TWO, 1, 1 << 60)) == (SendFrames(TWO, 1, 40, 70),)


def test_a_leader_answers_where_logs_part() -> None:
    """It returns its largest epoch up to the requested one and the end of that; for an empty log, its own begin."""
    run = Run()
    run.lead()
    run(LogAppended(50))
    log = run.member.log
    run.member = replace(
        run.member,
        log=replace(log, history=log.history.truncated(0).with_epoch(1, 0).with_epoch(4, 20).with_epoch(6, 30)),
    )
    asked = {0: (0, 0), 1: (1, 20), 3: (1, 20), 4: (4, 30), 5: (4, 30), 6: (6, 50), 9: (6, 50)}
    for number, (last_epoch, (largest, end)) in enumerate(asked.items(), 1):
        (answer,) = messages(run(LogMatchRequest(1, TWO, number, last_epoch)))
        assert isinstance(answer, LogMatchResponse)
        assert (answer.largest, answer.end, answer.stream) == (largest, end, number)


def test_a_follower_finds_where_logs_part() -> None:
    """It asks again below an epoch that it lacks, truncates, and confirms the match once that is on disk."""
    run = Run()
    run.follow()
    run(run.frames(0, 30), run.frames(30, 50, epoch=1), Flushed(1, 50))
    run.member = replace(run.member, log=replace(run.member.log, history=run.member.log.history.with_epoch(3, 40)))
    run(beat(THREE, 7), HardStateSaved(HardState(7, THREE)))
    assert messages(run.wanted) == [LogMatchRequest(7, ONE, 2, 3)]
    base = LogBase(0, 1, THREE_REPLICAS)
    assert messages(run(LogMatchResponse(7, ONE, 2, 2, 60, base))) == [LogMatchRequest(7, ONE, 2, 1)]
    assert run(LogMatchResponse(7, ONE, 2, 1, 35, base)) == (Truncate(35, 2),)
    assert run(Flushed(1, 50)) == ()
    assert messages(run(Truncated(2))) == [LogMatched(7, ONE, 2, 35, 35)]
    assert run.member.log.tail == Tail(1, 35)


def test_nothing_is_written_behind_a_cut_that_is_not_done() -> None:
    """Another leader's answer and a proposal wait for a durable truncation, which would remove later frames.

    Then the leader is asked again at once.
    """
    run = Run()
    run.follow()
    run(run.frames(0, 30), Flushed(1, 30), beat(THREE, 4), HardStateSaved(HardState(4, THREE)))
    base = LogBase(0, 1, THREE_REPLICAS)
    assert run(LogMatchResponse(4, ONE, 2, 1, 20, base)) == (Truncate(20, 2),)
    run(beat(TWO, 5), HardStateSaved(HardState(5, TWO)))
    assert run(LogMatchResponse(5, ONE, 3, 1, 20, base)) == ()
    run.now_s = LATER_S + 5
    assert run(LeaderProposed(6, ONE.replica)) == ()
    assert messages(run(Truncated(2))) == [LogMatchRequest(5, ONE, 3, 1)]
    assert messages(run(LogMatchResponse(5, ONE, 3, 1, 20, base))) == [LogMatched(5, ONE, 3, 20, 20)]


def test_what_is_below_the_leaders_begin_is_owed_before_it_is_given_up() -> None:
    """A log that ends before the leader's begin is reset to it; first its acknowledged end is saved."""
    run = Run()
    run.follow()
    run(run.frames(0, 30), Flushed(1, 30), beat(THREE, 4), HardStateSaved(HardState(4, THREE)))
    base = LogBase(100, 3, THREE_REPLICAS)
    owed = HardState(4, THREE, Tail(1, 30))
    assert run(LogMatchResponse(4, ONE, 2, 0, 100, base)) == (SaveHardState(owed),)
    assert messages(run(HardStateSaved(owed))) == [LogMatchRequest(4, ONE, 3, 1)]
    assert run(LogMatchResponse(4, ONE, 3, 0, 100, base)) == (Reset(base, 2),)
    assert messages(run(Truncated(2))) == [LogMatched(4, ONE, 3, 100, 100)]
    assert run.member.rules.claimed_tail(run.member.log, owed) == Tail(3, 100)


def test_frames_are_written_once_and_in_order() -> None:
    """Duplicate and early frames, and frames of another stream or a lower epoch, are dropped."""
    run = Run()
    run.follow()
    good = run.frames(0, 30)
    assert run(good) == (WriteFrames(0, 30, b""),)
    assert run(good) == ()
    assert run(run.frames(40, 50)) == ()
    assert run(replace(run.frames(30, 40), stream=99)) == ()
    assert run(replace(run.frames(30, 40), follower=Incarnation(ONE.replica, 9))) == ()
    assert run(replace(run.frames(30, 40), epoch=0)) == ()
    assert messages(run(Flushed(1, 30))) == [AppendAck(1, ONE, 1, 30)]


def test_a_follower_knows_as_committed_only_what_it_has_flushed() -> None:
    """The leader may be ahead of this disk."""
    run = Run()
    run.follow()
    assert run(run.frames(0, 30, committed=30)) == (WriteFrames(0, 30, b""),)
    run(Flushed(1, 20))
    assert ApplyCommitted(20) in run(beat(TWO, 1, committed=30, appended=30))


def test_everybody_deletes_by_the_frame_that_says_so() -> None:
    """The begin moves only when the frame is committed."""
    run = Run()
    run.follow()
    run(run.frames(0, 30), Flushed(1, 30))
    begins = replace(run.frames(30, 40), protocol_frames=(BeginFrame(30, 40, 20),))
    run(begins)
    assert run(Flushed(1, 40), beat(TWO, 1, committed=39, appended=40))[0] == ApplyCommitted(39)
    assert run(beat(TWO, 1, committed=40, appended=40))[:2] == (ApplyCommitted(40), DeleteBelow(20))
    assert run.member.log.base == LogBase(20, 1, THREE_REPLICAS)


def test_what_a_follower_needs_is_kept_within_bounds() -> None:
    """The begin waits for a follower that lags at most by the bytes kept for it."""
    run = Run()
    run.lead()
    run.followed(TWO)
    run(LogAppended(110), Flushed(0, 110), FramesSent(TWO, 1, 110), AppendAck(1, TWO, 1, 110))
    run(LogMatchRequest(1, THREE, 1, 0), LogMatched(1, THREE, 1, 40, 40))
    assert deletable_below(run.member, keep_bytes=100) == 40
    assert deletable_below(run.member, keep_bytes=50) == 110


def test_nothing_is_promised_to_others_during_a_lease() -> None:
    """Heartbeats and a start grant one; a leader that stops reading releases it."""
    run = Run()
    run.now_s = 0.5
    assert run(RequestVote(1, TWO)) == ()
    run.now_s = LATER_S
    run.follow()
    assert run(RequestVote(2, THREE)) == ()
    assert run(LeaseReleased(1, THREE)) == ()
    assert run(RequestVote(2, THREE)) == ()
    run(LeaseReleased(1, TWO))
    assert run(RequestVote(2, THREE)) == (SaveHardState(HardState(2, THREE)),)


def test_a_leader_reads_for_a_lease_from_when_it_asked() -> None:
    """The lease runs from the time when the round was sent."""
    run = Run()
    run.lead()
    assert not run.member.may_read(LATER_S)
    run.now_s = LATER_S + 0.5
    run.followed()
    assert run.member.may_read(LATER_S + 0.74)
    assert not run.member.may_read(LATER_S + 0.76)


def test_a_leader_gives_up_when_no_majority_answers() -> None:
    """After a second of silence another replica may lead."""
    run = Run()
    run.lead()
    run.followed()
    run.now_s = LATER_S + 0.9
    assert not any(isinstance(one, SteppedDown) for one in run(Tick()))
    run.now_s = LATER_S + 1.0
    assert run(Tick()) == (SteppedDown(1),)
    assert not run.member.may_append()


def test_a_leader_that_promises_another_leads_no_more() -> None:
    """Its first action is to step down."""
    run = Run()
    run.lead()
    assert run(RequestVote(2, TWO)) == (SteppedDown(1), SaveHardState(HardState(2, TWO)))


def test_news_of_a_higher_epoch_makes_a_leader_ask_for_one_above() -> None:
    """A follower that voted in a higher epoch cannot follow; the leader continues meanwhile."""
    run = Run()
    run.lead()
    assert run(StaleEpoch(8)) == (RequestElection(ONE.replica, 8),)
    assert isinstance(run.member.role, Leader)
    assert run(StaleEpoch(1)) == ()


def test_silence_is_reported_after_a_second() -> None:
    """Name servers propose by these reports."""
    run = Run()
    run.follow()
    run(run.frames(0, 30))
    run.now_s = LATER_S + 0.9
    assert not any(isinstance(one, ReportLeaderSilent) for one in run(Tick()))
    run.now_s = LATER_S + 1.1
    assert ReportLeaderSilent() in run(Tick())
    assert isinstance(run.member.role, Follower)


def test_a_stream_on_which_nothing_comes_is_begun_again() -> None:
    """Frames or answers may be lost: after half a second the follower asks again on a new stream."""
    run = Run()
    run.follow()
    run(beat(TWO, 1, appended=30))
    run.now_s = LATER_S + 0.6
    assert messages(run(Tick())) == [LogMatchRequest(1, ONE, 2, 0)]


def test_a_hand_over_waits_until_the_successor_has_everything() -> None:
    """Meanwhile nothing is appended. Then the leader releases its leases and requests the successor's election."""
    run = Run()
    run.lead()
    run.followed()
    run(LogAppended(20), FramesSent(TWO, 1, 20), Flushed(0, 20))
    assert run(TransferLeadership(TWO.replica)) == ()
    assert not run.member.may_append()
    done = run(AppendAck(1, TWO, 1, 20))
    assert done[:2] == (ApplyCommitted(20), SteppedDown(1))
    assert messages(done) == [LeaseReleased(1, ONE), LeaseReleased(1, ONE), TimeoutNow(2, TWO.replica)]
    assert done[-1] == RequestElection(TWO.replica, 1)


def test_a_hand_over_that_comes_to_nothing_ends() -> None:
    """After a second the leader continues."""
    run = Run()
    run.lead()
    run.followed()
    run(TransferLeadership(THREE.replica))
    run.now_s = LATER_S + 0.9
    run(Tick(), HeartbeatResponse(1, TWO, 2, 1, 10), Tick())
    assert not run.member.may_append()
    run.now_s = LATER_S + 1.1
    run(Tick())
    assert run.member.may_append()


def test_a_joiner_learns_first_and_votes_then() -> None:
    """It becomes a voter automatically once it answered, has the committed log, and no other change is pending."""
    run = Run()
    run.lead()
    run.followed()
    learning = Configuration(THREE_REPLICAS.voters, (FOUR.replica,))
    assert run(AddLearner(FOUR.replica)) == (AppendConfiguration(learning),)
    run(
        LogAppended(20, (ConfigurationFrame(20, learning),)),
        LogMatchRequest(1, FOUR, 1, 0),
        LogMatched(1, FOUR, 1, 0, 0),
    )
    run(FramesSent(FOUR, 1, 20), AppendAck(1, FOUR, 1, 20), Flushed(0, 20), FramesSent(TWO, 1, 20))
    voting = Configuration((*THREE_REPLICAS.voters, FOUR.replica))
    assert run(AppendAck(1, TWO, 1, 20)) == (ApplyCommitted(20),)
    # A voter that never answered would count as silent, and the leader might step down because of it.
    assert run(HeartbeatResponse(1, FOUR, 1, 1, 20)) == (AppendConfiguration(voting),)
    assert run.member.log.configuration.majority == 2
    run(LogAppended(30, (ConfigurationFrame(30, voting),)))
    assert run.member.log.configuration.majority == 3


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (AddLearner(TWO.replica), "in the set already"),
        (RemoveReplica(FOUR.replica), "is not in the set"),
        (RemoveReplica(ONE.replica), "transfer leadership to another first"),
    ],
)
def test_changes_that_make_no_sense_are_refused(change: Event, why: str) -> None:
    """The operator gets the reason, and nothing is appended."""
    run = Run()
    run.lead()
    run.followed()
    (refused,) = run(change)
    assert isinstance(refused, RejectRequest)
    assert why in refused.reason


def test_a_voter_without_which_nothing_could_be_decided_is_not_removed() -> None:
    """The frame could never be committed. Replicas with the frame would not count that voter, so none could lead."""
    run = Run()
    run.lead()
    run.followed()
    run.now_s = LATER_S + 0.9
    run(Tick())
    run.now_s = LATER_S + 1.0
    run(HeartbeatResponse(1, TWO, 2, 1, 10))
    (refused,) = run(RemoveReplica(TWO.replica))
    assert isinstance(refused, RejectRequest)
    assert "start replica 3" in refused.reason
    assert run(RemoveReplica(THREE.replica)) == (AppendConfiguration(Configuration((ONE.replica, TWO.replica))),)
    run(HeartbeatResponse(1, THREE, 2, 1, 10))
    assert run(RemoveReplica(TWO.replica)) == (AppendConfiguration(Configuration((ONE.replica, THREE.replica))),)


def test_replicas_change_one_at_a_time_and_never_before_the_epoch_frame() -> None:
    """Both refusals name the remedy."""
    run = Run()
    run.lead()
    assert "EPOCH" in str(run(RemoveReplica(TWO.replica)))
    run.followed()
    left = Configuration((ONE.replica, TWO.replica))
    assert run(RemoveReplica(THREE.replica)) == (AppendConfiguration(left),)
    run(LogAppended(20, (ConfigurationFrame(20, left),)))
    assert "not committed" in str(run(AddLearner(FOUR.replica)))
