"""The safety rules of the protocol, which checks each rule before it acts. Each rule names its source.

Tests override them one by one: without a rule, the explorer finds a run that loses committed data.
"""

from collections.abc import Sequence

from ortoo.enode.replication.protocol.identity import Configuration, HardState, Incarnation, ReplicaId, Tail
from ortoo.enode.replication.protocol.log_summary import EpochHistory, LogSummary
from ortoo.enode.replication.protocol.roles import DiskStall, FollowerStream, Leader


class Rules:
    """All safety rules; stateless."""

    # votes

    def may_vote(self, hard_state: HardState, epoch: int, candidate: Incarnation) -> bool:
        """Whether this replica may vote: for one candidate in each epoch, in rising epochs (raft §5.2, Paxos' promise).

        The vote is for one start of one disk. A restarted candidate does not know which messages it sent in its
        epoch, so it gets no second vote in that epoch.
        """
        return epoch > hard_state.epoch or (epoch == hard_state.epoch and candidate == hard_state.leader)

    def may_stand(self, epoch: int, released_epoch: int) -> bool:
        """Whether this replica may stand for election in `epoch`: it has not released the leases of this epoch.

        Otherwise a late `LeaseReleased` of that epoch could end a lease that it has after a second election in it.
        """
        return epoch > released_epoch

    def has_lease_expired(self, now_s: float, lease_until_s: float) -> bool:
        """Whether the leader's lease has expired. Before that, this replica votes for no other replica.

        Gray and Cheriton 1989; raft's thesis, §6.4.1. A restarted replica behaves as if it had just granted a lease,
        because it does not know earlier leases.
        """
        return now_s >= lease_until_s

    def is_voter(self, configuration: Configuration, voter: Incarnation) -> bool:
        """Whether the voter's disk is in the configuration: an emptied disk has lost its votes (VR revisited)."""
        return voter.replica in configuration.voters

    def is_majority(self, configuration: Configuration, count: int) -> bool:
        """Whether `count` voters are a quorum, more than half: any two quorums intersect (Gifford 1979)."""
        return count >= configuration.majority

    def is_log_ahead(self, theirs: Tail, own: Tail) -> bool:
        """Whether a log that ends at `theirs` may hold committed frames that this log lacks (raft §5.4.1).

        Its last epoch is later, or it is longer in the same epoch.
        """
        return theirs > own

    def claimed_tail(self, log: LogSummary, hard_state: HardState) -> Tail:
        """The tail that this replica claims: its log's tail, or the greater tail that its disk has lost.

        So no candidate without the lost frames wins (VR's recovery).
        """
        return max(log.tail, hard_state.unsynced_tail)

    def is_electable(self, log: LogSummary, hard_state: HardState) -> bool:
        """Whether this replica may lead: it has fetched from other replicas the frames that its disk lost."""
        return log.tail >= hard_state.unsynced_tail

    def accepts_epoch(self, hard_state: HardState, epoch: int) -> bool:
        """Whether frames, heartbeats and truncations of `epoch` are accepted (raft §5.1; fencing).

        Those of epochs below the vote's epoch are rejected.
        """
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
        """The position up to which a follower's acknowledgements count: the end of frames sent on a matched stream."""
        return min(stream.flushed, stream.sent) if stream and stream.is_matched else 0

    def is_current_stream(self, leader: Leader, follower: Incarnation, stream: int) -> bool:
        """Whether an answer counts: it is on the current stream, of the current start and disk of the follower."""
        known = leader.stream_to(follower.replica)
        return known is not None and (known.follower, known.number) == (follower, stream)

    def has_stalled_disk(self, log: LogSummary, stall: DiskStall, now_s: float, timeout_s: float) -> bool:
        """Whether the leader's disk has confirmed nothing for `timeout_s`, while a majority without it did.

        The leader's heartbeats do not use its disk, so they do not show this.
        """
        return log.flushed <= stall.flushed and now_s - stall.since_s >= timeout_s

    def is_disk_full(self, since_s: float, now_s: float, timeout_s: float) -> bool:
        """Whether a disk without room since `since_s` counts as full; before that, retention may still free space."""
        return now_s - since_s >= timeout_s

    def may_commit(self, leader: Leader, position: int) -> bool:
        """Whether the leader may commit up to `position`: its EPOCH frame lies below (raft §5.4.2, figure 8)."""
        return 0 < leader.epoch_end <= position

    def may_repair_from(self, log: LogSummary, epoch: int, end: int) -> bool:
        """Whether another disk's frame may replace a damaged frame: it is committed and of the same epoch.

        An epoch has one leader, so a frame of that epoch at that position is the original one.
        """
        return end <= log.committed and epoch == log.history.epoch_before(end)

    def may_serve(self, leader: Leader, committed: int) -> bool:
        """Whether a leader may serve: its EPOCH frame is committed, so it knows all committed frames (raft §8)."""
        return 0 < leader.epoch_end <= committed

    def follower_commit_position(self, log: LogSummary, leader_commit: int, *, is_matched: bool) -> int:
        """The committed position of a follower: the leader's, but at most the flushed end of a log that matches."""
        return max(log.committed, min(leader_commit, log.flushed)) if is_matched else log.committed

    # matching

    def matching_end(self, own: EpochHistory, own_end: int, largest: int, end: int) -> int | None:
        """The position where two logs diverge, found by epochs; None = ask again with a lower epoch (KIP-101, KIP-279).

        The leader's frames of epoch `largest` end at `end`. An epoch has one leader. So two logs that both have frames
        of an epoch are equal up to the smaller of their ends in that epoch.
        """
        of_epoch = own.end_of_epoch(largest, own_end)
        return None if of_epoch is None else min(end, of_epoch)

    def is_current_response(self, own: Incarnation, stream: int, follower: Incarnation, answered_stream: int) -> bool:
        """Whether an answer is to this start and stream: an older answer could truncate frames acknowledged since."""
        return (follower, answered_stream) == (own, stream)

    def may_write(self, log: LogSummary) -> bool:
        """Whether the log may be written: a truncation must be durable first, or its repetition may remove a write."""
        return not log.is_truncating

    # replicas

    def configuration_change_refusal(self, leader: Leader, log: LogSummary) -> str:
        """The reason why the replica set may not be changed now; empty if it may.

        Changes are made one by one, after the EPOCH frame is committed (Ongaro 2015).
        """
        if not self.may_serve(leader, log.committed):
            return "this leader has not committed its EPOCH frame: try again in a moment"
        if log.configurations[-1].end > log.committed:
            return "the last change of the replica set is not committed: try again in a moment"
        return ""

    def is_caught_up(self, log: LogSummary, learner: FollowerStream) -> bool:
        """Whether a learner has the committed log and may become a voter. Before, it would weaken the majority."""
        return self.acknowledged_position(learner) >= log.committed

    def configuration_of(self, log: LogSummary) -> Configuration:
        """The configuration in force. It counts as soon as its frame is appended (raft's thesis, §4.1)."""
        return log.configuration

    # reads

    def read_lease_until(self, leader: Leader, rounds: Sequence[int], majority: int, lease_s: float) -> float:
        """The end of the leader's read lease, counted from when the last round that a majority answered was *sent*."""
        answered = sorted(rounds, reverse=True)[majority - 1]
        return max((sent_s for number, sent_s in leader.rounds if number <= answered), default=-lease_s) + lease_s
