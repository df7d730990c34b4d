"""The safety rules of the protocol, which checks each rule before it acts. Each rule names its source.

Tests override them one by one: without a rule, the explorer finds a run that loses committed data.
"""

from collections.abc import Sequence

from ortoo.enode.replication.protocol.identity import Configuration, HardState, Incarnation, ReplicaId, Tail
from ortoo.enode.replication.protocol.log_summary import EpochHistory, LogSummary
from ortoo.enode.replication.protocol.roles import FollowerStream, Leader


class Rules:
    """All safety rules; stateless."""

    # votes

    def may_vote(self, hard_state: HardState, epoch: int, candidate: Incarnation) -> bool:
        """One vote in each epoch, in rising epochs, for one start of one disk (raft §5.2; Paxos' promise).

        A restarted candidate does not know which messages it sent in its epoch, so it gets no second vote in that
        epoch.
        """
        return epoch > hard_state.epoch or (epoch == hard_state.epoch and candidate == hard_state.leader)

    def has_lease_expired(self, now_s: float, lease_until_s: float) -> bool:
        """Whether the leader's lease has expired. Before that, this replica votes for no other replica.

        Gray and Cheriton 1989; raft's thesis, §6.4.1. A restarted replica behaves as if it had just granted a lease,
        because it does not know earlier leases.
        """
        return now_s >= lease_until_s

    def is_voter(self, configuration: Configuration, voter: Incarnation) -> bool:
        """Only disks of the configuration vote: an emptied disk has lost its votes (VR revisited)."""
        return voter.replica in configuration.voters

    def is_majority(self, configuration: Configuration, count: int) -> bool:
        """A quorum is more than half of the voters: any two quorums intersect (Gifford 1979)."""
        return count >= configuration.majority

    def is_log_ahead(self, theirs: Tail, own: Tail) -> bool:
        """A log with a later last epoch, or longer in the same epoch, may hold committed frames (raft §5.4.1)."""
        return theirs > own

    def claimed_tail(self, log: LogSummary, hard_state: HardState) -> Tail:
        """A disk that lost acknowledged frames claims its old tail. So no log without them wins (VR's recovery)."""
        return max(log.tail, hard_state.unsynced_tail)

    def is_electable(self, log: LogSummary, hard_state: HardState) -> bool:
        """A replica may lead only after it has fetched its lost frames from other replicas."""
        return log.tail >= hard_state.unsynced_tail

    def accepts_epoch(self, hard_state: HardState, epoch: int) -> bool:
        """Frames, heartbeats and truncations of epochs below the vote are rejected (raft §5.1; fencing)."""
        return epoch >= hard_state.epoch

    # commitment

    def commit_position(self, log: LogSummary, leader: Leader, own: ReplicaId) -> int:
        """The position below which a majority of the voters, including the leader, has everything on disk."""
        configuration = self.configuration_of(log)
        flushed = [
            log.flushed if voter == own else self.acknowledged_position(leader.stream_to(voter))
            for voter in configuration.voters
        ]
        return sorted(flushed, reverse=True)[configuration.majority - 1]

    def acknowledged_position(self, stream: FollowerStream | None) -> int:
        """Only frames sent on a stream matched in this epoch count, whatever position the follower reports."""
        return min(stream.flushed, stream.sent) if stream and stream.is_matched else 0

    def is_current_stream(self, leader: Leader, follower: Incarnation, stream: int) -> bool:
        """An answer counts only on the current stream, and not from an earlier start or disk of the follower."""
        known = leader.stream_to(follower.replica)
        return known is not None and (known.follower, known.number) == (follower, stream)

    def may_commit(self, leader: Leader, position: int) -> bool:
        """Frames of older epochs are committed only through this leader's EPOCH frame (raft §5.4.2, figure 8)."""
        return 0 < leader.epoch_end <= position

    def may_repair_from(self, log: LogSummary, epoch: int, end: int) -> bool:
        """Another disk's frame may replace a damaged one only if it is committed and of the same epoch.

        An epoch has one leader, so a frame of that epoch at that position is the original one.
        """
        return end <= log.committed and epoch == log.history.epoch_before(end)

    def may_serve(self, leader: Leader, committed: int) -> bool:
        """Before its EPOCH frame is committed a leader does not know which frames are committed (raft §8)."""
        return 0 < leader.epoch_end <= committed

    def follower_commit_position(self, log: LogSummary, leader_commit: int, *, is_matched: bool) -> int:
        """The leader's committed position, up to the flushed end of a log that matches the leader's."""
        return max(log.committed, min(leader_commit, log.flushed)) if is_matched else log.committed

    # matching

    def matching_end(self, own: EpochHistory, own_end: int, largest: int, end: int) -> int | None:
        """The position where two logs diverge, found by epochs; None = ask again with a lower epoch (KIP-101, KIP-279).

        The leader's frames of `largest` end at `end`. An epoch has one leader. So two logs that both have frames of an
        epoch are equal up to the smaller of their ends in that epoch.
        """
        of_epoch = own.end_of_epoch(largest, own_end)
        return None if of_epoch is None else min(end, of_epoch)

    def is_current_response(self, own: Incarnation, stream: int, follower: Incarnation, answered_stream: int) -> bool:
        """Answers to an earlier start or stream are ignored: they could truncate frames acknowledged since."""
        return (follower, answered_stream) == (own, stream)

    def may_write(self, log: LogSummary) -> bool:
        """A truncation must be durable before the next write; otherwise a repeated truncation could remove it."""
        return not log.is_truncating

    # replicas

    def configuration_change_refusal(self, leader: Leader, log: LogSummary) -> str:
        """Why no change is allowed now, or empty. Changes are made one by one, after the EPOCH frame (Ongaro 2015)."""
        if not self.may_serve(leader, log.committed):
            return "this leader has not committed its EPOCH frame: try again in a moment"
        if log.configurations[-1].end > log.committed:
            return "the last change of the replica set is not committed: try again in a moment"
        return ""

    def is_caught_up(self, log: LogSummary, learner: FollowerStream) -> bool:
        """A learner becomes a voter once it has the committed log. Before, it would weaken the majority."""
        return self.acknowledged_position(learner) >= log.committed

    def configuration_of(self, log: LogSummary) -> Configuration:
        """A configuration counts as soon as its frame is appended (raft's thesis, §4.1)."""
        return log.configuration

    # reads

    def read_lease_until(self, leader: Leader, rounds: Sequence[int], majority: int, lease_s: float) -> float:
        """The end of the leader's read lease, counted from when the last round that a majority answered was *sent*."""
        answered = sorted(rounds, reverse=True)[majority - 1]
        return max((sent_s for number, sent_s in leader.rounds if number <= answered), default=-lease_s) + lease_s
