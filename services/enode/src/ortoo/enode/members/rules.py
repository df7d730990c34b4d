"""The rules that keep what is committed. Each is one question that the protocol asks before it acts, with its source.

Tests override them one by one: without the rule, the explorer finds the run in which something is lost.
"""

from collections.abc import Sequence

from ortoo.enode.members.identity import Configuration, MemberId, Process, Reign, Tail
from ortoo.enode.members.log_outline import History, LogOutline
from ortoo.enode.members.roles import Leader, Stream


class Rules:
    """All of them. They hold no state."""

    # promises

    def may_promise(self, reign: Reign, epoch: int, candidate: Process) -> bool:
        """Each epoch is promised once, upwards only, to one start of one disk (raft §5.2; Paxos' promise).

        A candidate that restarts has forgotten what it sent in its epoch, so it gets that epoch from nobody again.
        """
        return epoch > reign.epoch or (epoch == reign.epoch and candidate == reign.leader)

    def may_break_silence(self, now_s: float, lease_until_s: float) -> bool:
        """While the leader may answer reads by a lease that was given to it, nobody else is promised anything.

        Gray and Cheriton 1989; raft's thesis, §6.4.1. A start counts as a lease given, for nobody remembers whether.
        """
        return now_s >= lease_until_s

    def counts_vote(self, members: Configuration, voter: Process) -> bool:
        """Only the disks of the configuration vote: one that was emptied has forgotten its promises (VR revisited)."""
        return voter.member in members.voters

    def is_enough(self, members: Configuration, count: int) -> bool:
        """More than half of the voters: any two such sets share one (Gifford 1979)."""
        return count >= members.majority

    def is_ahead(self, theirs: Tail, own: Tail) -> bool:
        """A log that ends in a later epoch, or in the same and further, may hold what was committed (raft §5.4.1)."""
        return theirs > own

    def claimed_tail(self, log: LogOutline, reign: Reign) -> Tail:
        """A disk that lost what it had acknowledged still says so, lest a log without it win (VR's recovery)."""
        return max(log.tail, reign.owed)

    def is_electable(self, log: LogOutline, reign: Reign) -> bool:
        """What was lost is fetched from the others before the member may lead."""
        return log.tail >= reign.owed

    def obeys(self, reign: Reign, epoch: int) -> bool:
        """No frame, no heartbeat, no cut from an epoch below the promised one (raft §5.1; fencing)."""
        return epoch >= reign.epoch

    # commitment

    def commit_position(self, log: LogOutline, leader: Leader, me: MemberId) -> int:
        """Below it, a majority of the voters has everything on disk; the leader's own disk counts as one."""
        members = self.in_force(log)
        flushed = [
            log.flushed if voter == me else self.counted_position(leader.stream_of(voter)) for voter in members.voters
        ]
        return sorted(flushed, reverse=True)[members.majority - 1]

    def counted_position(self, stream: Stream | None) -> int:
        """Only what was sent on a stream matched in this epoch counts, whatever the follower says."""
        return min(stream.flushed, stream.sent) if stream and stream.is_matched else 0

    def speaks_now(self, leader: Leader, follower: Process, stream: int) -> bool:
        """An answer counts for the stream of the process that is there now, not for an emptied or restarted one."""
        known = leader.stream_of(follower.member)
        return known is not None and (known.follower, known.number) == (follower, stream)

    def commits(self, leader: Leader, position: int) -> bool:
        """Frames of older epochs are committed only through this leader's EPOCH frame (raft §5.4.2, figure 8)."""
        return 0 < leader.epoch_end <= position

    def may_take_copy(self, log: LogOutline, epoch: int, end: int) -> bool:
        """Another disk's frame may take the place of a damaged one only where it is committed, and of the same epoch.

        An epoch has one leader, so such a frame at such a position is the one that was there.
        """
        return end <= log.committed and epoch == log.history.epoch_below(end)

    def may_serve(self, leader: Leader, committed: int) -> bool:
        """Before its EPOCH frame is committed a leader does not know what was (raft §8)."""
        return 0 < leader.epoch_end <= committed

    def follower_commit(self, log: LogOutline, said: int, *, is_matched: bool) -> int:
        """What a leader says is committed is so in a log that matched the leader's, as far as it goes."""
        return max(log.committed, min(said, log.flushed)) if is_matched else log.committed

    # matching

    def agreed_end(self, own: History, own_end: int, largest: int, end: int) -> int | None:
        """Where two logs part, by epochs and never by length; None to ask again with a lower epoch (KIP-101, KIP-279).

        The leader's frames of `largest` end at `end`. Two logs that both have frames of one epoch are equal up to where
        the first of the two ends in it, for an epoch has one leader.
        """
        of_epoch = own.end_of(largest, own_end)
        return None if of_epoch is None else min(end, of_epoch)

    def is_answered(self, me: Process, stream: int, follower: Process, answered: int) -> bool:
        """An answer to an earlier start or stream knows less than is acknowledged by now, and may cut that."""
        return (follower, answered) == (me, stream)

    def may_write(self, log: LogOutline) -> bool:
        """What is cut is gone for good before anything is written behind it, or the cut may take that as well."""
        return not log.is_cutting

    # members

    def change_refusal(self, leader: Leader, log: LogOutline) -> str:
        """One change at a time, after a frame of this leader's own epoch is committed (Ongaro 2015, single-server)."""
        if not self.may_serve(leader, log.committed):
            return "this leader has not committed its EPOCH frame: try again in a moment"
        if log.placed[-1].end > log.committed:
            return "the last change of the members is not committed: try again in a moment"
        return ""

    def is_caught_up(self, log: LogOutline, learner: Stream) -> bool:
        """A joiner votes when it has what is committed: before, it could only take away from the majority."""
        return self.counted_position(learner) >= log.committed

    def in_force(self, log: LogOutline) -> Configuration:
        """New members count from the moment their frame is appended (raft's thesis, §4.1)."""
        return log.members

    # reads

    def read_lease_until(self, leader: Leader, rounds: Sequence[int], majority: int, lease_s: float) -> float:
        """Until when the leader may answer reads: a lease from when the round was *sent* that a majority answered."""
        answered = sorted(rounds, reverse=True)[majority - 1]
        return max((sent_s for number, sent_s in leader.rounds if number <= answered), default=-lease_s) + lease_s
