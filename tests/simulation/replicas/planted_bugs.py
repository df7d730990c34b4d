"""Rules of the protocol and duties of its driver, disabled one by one: the explorer must find the violation.

python -m tests.simulation.replicas.planted_bugs [--seeds N] [NAME...]
"""

import argparse
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from ortoo.enode.replication.protocol.events import Event, Flushed, HardStateSaved, SaveHardState
from ortoo.enode.replication.protocol.identity import Configuration, HardState, Incarnation, ReplicaId, Tail
from ortoo.enode.replication.protocol.log_summary import EpochHistory, LogSummary
from ortoo.enode.replication.protocol.messages import LogMatchResponse, Vote
from ortoo.enode.replication.protocol.roles import DiskStall, FollowerStream, Leader
from ortoo.enode.replication.protocol.rules import Rules
from tests.simulation.replicas.walk import SCENARIOS, TURNS, Scenario, first_violation
from tests.simulation.replicas.world import Machine, World

NO_LEASES = Scenario(lease_s=0.0)
"""Without leases there are more elections."""
CALM = replace(NO_LEASES, weights={**TURNS, "power": 0.3})
SLOW = replace(CALM, steps=400, weights={**TURNS, "isolate": 4, "heal": 2, "power": 0.3}, window_bytes=1)
RESTARTS = replace(NO_LEASES, weights={"kill": 3, "power": 3, "start": 20, "propose": 10, "usurp": 6})
OLD_ANSWERS = replace(
    RESTARTS,
    weights={"kill": 3, "power": 3, "start": 20, "late": 5, "send": 12},
    doubled=1.0,
    comes_late=(LogMatchResponse,),
)
SAID_TWICE = replace(
    RESTARTS,
    weights={"power": 4, "start": 30, "propose": 10, "late": 6, "send": 12, "disk": 14, "isolate": 0},
    said_twice=0.7,
    doubled=1.0,
    comes_late=(Vote,),
)
UNSAVED = replace(NO_LEASES, weights={"disk": 10, "power": 3, "start": 20, "propose": 12, "usurp": 6})
POWER = replace(NO_LEASES, weights={"power": 4, "start": 16, "disk": 12, "kill": 0, "usurp": 6, "send": 16})
EMPTIED = replace(NO_LEASES, steps=300, weights={"wipe": 3, "start": 20, "propose": 6, "usurp": 8, "send": 12})
DAMAGED = replace(NO_LEASES, weights={**TURNS, "damage": 1.5, "start": 12, "power": 1.5})
JOINING = Scenario(joiners=1, weights={"change": 2})
LEAVING = replace(NO_LEASES, voters_min=1, weights={**TURNS, "change": 6})
NOTHING_ELSE = dict.fromkeys(("send", "kill", "power", "start", "propose", "hand_over", "late"), 0.0)
FOUR = replace(
    NO_LEASES,
    voters=4,
    silence_s=60.0,
    steps=120,
    weights={**NOTHING_ELSE, "usurp": 8, "isolate": 8, "heal": 0.5, "change": 10, "deliver": 40, "tick": 1},
    window_bytes=3,
    lost=0.0,
    doubled=0.0,
)
"""Two leaders of four change the replica set concurrently: a rare walk, so nothing else happens in it."""
LEASES = Scenario(
    steps=300,
    silence_s=60.0,
    weights={"tick": 6, "usurp": 5, "isolate": 3, "heal": 2, "kill": 0, "power": 0, "send": 12, "hand_over": 0},
)


@dataclass(frozen=True)
class Switch:
    """One disabled rule, and the scenario that shows it."""

    scenario: Scenario
    rules: type[Rules] = Rules
    world: type[World] = World
    seed: int = 1
    """The first seed that shows it; this module's command finds it again when the protocol or the walks change."""


# Rules.


class PromisesTwice(Rules):
    """A replica votes twice in an epoch."""

    def may_vote(self, reign: HardState, epoch: int, candidate: Incarnation) -> bool:
        return epoch >= reign.epoch


class PromisesDownwards(Rules):
    """A replica votes in an epoch below one it has voted in."""

    def may_vote(self, reign: HardState, epoch: int, candidate: Incarnation) -> bool:
        return epoch != reign.epoch or candidate == reign.leader


class PromisesToALaterStart(Rules):
    """A restarted candidate gets the vote of its earlier start."""

    def may_vote(self, reign: HardState, epoch: int, candidate: Incarnation) -> bool:
        return epoch > reign.epoch or (epoch == reign.epoch and candidate.replica == reign.leader.replica)


class BreaksTheSilence(Rules):
    """A replica votes although a leader reads by the lease that this replica granted."""

    def has_lease_expired(self, now_s: float, lease_until_s: float) -> bool:
        return True


class CountsEmptiedDisks(Rules):
    """A replica votes by its number, although its disk was emptied."""

    def is_voter(self, members: Configuration, voter: Incarnation) -> bool:
        return voter.replica.number in {one.number for one in members.voters}


class HalfIsEnough(Rules):
    """Two majorities need not overlap."""

    def is_majority(self, members: Configuration, count: int) -> bool:
        return count >= len(members.voters) // 2


class LeadsWithLess(Rules):
    """The vote of a voter with a longer log than the candidate counts."""

    def is_log_ahead(self, theirs: Tail, own: Tail) -> bool:
        return False


class ComparesLengths(Rules):
    """The longer log counts as the more recent one."""

    def is_log_ahead(self, theirs: Tail, own: Tail) -> bool:
        return theirs.position > own.position


class ForgetsWhatItOwes(Rules):
    """A voter whose disk lost acknowledged frames reports only the remaining ones."""

    def claimed_tail(self, log: LogSummary, reign: HardState) -> Tail:
        return log.tail


class LeadsWithAHole(Rules):
    """A replica that lost acknowledged frames leads."""

    def is_electable(self, log: LogSummary, reign: HardState) -> bool:
        return True


class ObeysTheOld(Rules):
    """Frames and heartbeats of an epoch lower than the voted one are accepted."""

    def accepts_epoch(self, reign: HardState, epoch: int) -> bool:
        return True


class CountsWhatIsNotFlushed(Rules):
    """The leader counts its own disk before the flush."""

    def commit_position(self, log: LogSummary, leader: Leader, me: ReplicaId) -> int:
        return super().commit_position(replace(log, flushed=log.appended), leader, me)


class CommitsOldEpochs(Rules):
    """Frames of older epochs count as committed when a majority has them."""

    def may_commit(self, leader: Leader, position: int) -> bool:
        return True


class ServesAtOnce(Rules):
    """A leader answers before its EPOCH frame is committed."""

    def may_serve(self, leader: Leader, committed: int) -> bool:
        return leader.epoch_end > 0


class BelievesCommitUnmatched(Rules):
    """A follower applies the leader's commit position to its own log before the two match."""

    def follower_commit_position(self, log: LogSummary, said: int, *, is_matched: bool) -> int:
        return super().follower_commit_position(log, said, is_matched=True)


class MatchesByLength(Rules):
    """Two logs count as matching up to the end of the shorter one."""

    def matching_end(self, own: EpochHistory, own_end: int, largest: int, end: int) -> int | None:
        return min(own_end, end)


class MatchesItsOwnEnd(Rules):
    """A follower truncates only frames of epochs that the leader does not have, as with a high watermark alone."""

    def matching_end(self, own: EpochHistory, own_end: int, largest: int, end: int) -> int | None:
        return own.end_of_epoch(largest, own_end)


class HearsOldAnswers(Rules):
    """An answer to an earlier start of the follower counts."""

    def is_current_response(self, me: Incarnation, stream: int, follower: Incarnation, answered: int) -> bool:
        return True


class CountsUnmatched(Rules):
    """A follower's frames count before its log matches the leader's."""

    def acknowledged_position(self, stream: FollowerStream | None) -> int:
        return max(stream.flushed, stream.sent) if stream else 0


class ChangesTwice(Rules):
    """A second change of the replica set begins before the first is committed."""

    def configuration_change_refusal(self, leader: Leader, log: LogSummary) -> str:
        return "" if self.may_serve(leader, log.committed) else "not yet"


class ChangesAtOnce(Rules):
    """A leader changes the replica set before a frame of its epoch is committed."""

    def configuration_change_refusal(self, leader: Leader, log: LogSummary) -> str:
        return "" if log.configurations[-1].end <= log.committed and leader.epoch_end else "not yet"


class JoinsEmpty(Rules):
    """A joining replica votes before it has all committed frames."""

    def is_caught_up(self, log: LogSummary, learner: FollowerStream) -> bool:
        return True


class ChangesWhenCommitted(Rules):
    """A new replica set counts only when its frame is committed."""

    def configuration_of(self, log: LogSummary) -> Configuration:
        return log.configurations[0].configuration


class LeasesFromTheAnswer(Rules):
    """A leader reads by its last heartbeat, whether or not it was answered."""

    def read_lease_until(self, leader: Leader, rounds: Sequence[int], majority: int, lease_s: float) -> float:
        return max((sent_s for _, sent_s in leader.rounds), default=-lease_s) + lease_s


class TrustsItsHeartbeats(Rules):
    """A leader whose disk answers nothing leads as long as followers answer its heartbeats."""

    def has_stalled_disk(self, log: LogSummary, stall: DiskStall, now_s: float, timeout_s: float) -> bool:
        return False


class KeepsLeadingFull(Rules):
    """A leader whose disk has no room leads until an operator transfers leadership."""

    def is_disk_full(self, since_s: float, now_s: float, timeout_s: float) -> bool:
        return False


# Duties of the driver.


class SpeaksBeforeItIsSaved(World):
    """A vote is sent before it is on disk."""

    def feed(self, number: int, event: Event) -> None:
        super().feed(number, event)
        for task in self.machines[number].work:
            if isinstance(task, SaveHardState):
                super().feed(number, HardStateSaved(task.hard_state))


class SpeaksBeforeItIsFlushed(World):
    """Frames count as flushed when they are written."""

    def feed(self, number: int, event: Event) -> None:
        super().feed(number, event)
        for task in self.machines[number].work:
            if isinstance(task, Flushed):
                super().feed(number, task)


class BelievesWhatItFinds(World):
    """Frames found at a start count as flushed, although they may be in memory only."""

    def start(self, number: int) -> None:
        super().start(number)
        flushed = self.machines[number].work[0]
        assert isinstance(flushed, Flushed)
        self.feed(number, flushed)


class KeepsTheDisksName(World):
    """An emptied disk keeps its id."""

    def new_disk_id(self, machine: Machine) -> str:
        return machine.disk_id


class KeepsItsStart(World):
    """A restarted process keeps its incarnation."""

    def next_incarnation(self, machine: Machine) -> int:
        return 1


class ForgetsTheMark(World):
    """A start that finds less than the durable mark lowers the mark."""

    def start(self, number: int) -> None:
        super().start(number)
        machine, member = self.machines[number], self.up(number)
        reign = replace(member.hard_state, unsynced_tail=Tail(0, 0))
        machine.disk = replace(machine.disk, reign=reign, flushed=min(machine.disk.flushed, member.log.tail))
        machine.member = replace(member, hard_state=reign)


SWITCHES: Mapping[str, Switch] = {
    "promises_twice": Switch(CALM, PromisesTwice, seed=26),
    "promises_downwards": Switch(CALM, PromisesDownwards, seed=21),
    "promises_to_a_later_start": Switch(RESTARTS, PromisesToALaterStart, seed=31),
    "breaks_the_silence": Switch(LEASES, BreaksTheSilence, seed=85),
    "counts_emptied_disks": Switch(EMPTIED, CountsEmptiedDisks, seed=49),
    "half_is_enough": Switch(CALM, HalfIsEnough, seed=9),
    "leads_with_less": Switch(CALM, LeadsWithLess, seed=19),
    "compares_lengths": Switch(SLOW, ComparesLengths, seed=238),
    "forgets_what_it_owes": Switch(DAMAGED, ForgetsWhatItOwes, seed=410),
    "leads_with_a_hole": Switch(DAMAGED, LeadsWithAHole, seed=3646),
    "obeys_the_old": Switch(LEASES, ObeysTheOld, seed=892),
    "counts_what_is_not_flushed": Switch(POWER, CountsWhatIsNotFlushed, seed=49),
    "commits_old_epochs": Switch(SLOW, CommitsOldEpochs, seed=1139),
    "serves_at_once": Switch(LEASES, ServesAtOnce, seed=6),
    "believes_commit_unmatched": Switch(CALM, BelievesCommitUnmatched, seed=16),
    "matches_by_length": Switch(SLOW, MatchesByLength, seed=195),
    "matches_its_own_end": Switch(CALM, MatchesItsOwnEnd, seed=54),
    "hears_old_answers": Switch(OLD_ANSWERS, HearsOldAnswers, seed=208),
    "counts_unmatched": Switch(CALM, CountsUnmatched, seed=1),
    "changes_twice": Switch(LEAVING, ChangesTwice, seed=15),
    "changes_at_once": Switch(FOUR, ChangesAtOnce, seed=792),
    "joins_empty": Switch(JOINING, JoinsEmpty, seed=33),
    "changes_when_committed": Switch(LEAVING, ChangesWhenCommitted, seed=38),
    "leases_from_the_answer": Switch(LEASES, LeasesFromTheAnswer, seed=54),
    "trusts_its_heartbeats": Switch(SCENARIOS["the leader's disk hangs"], TrustsItsHeartbeats),
    "keeps_leading_full": Switch(SCENARIOS["the leader's disk is full"], KeepsLeadingFull),
    "speaks_before_it_is_saved": Switch(UNSAVED, world=SpeaksBeforeItIsSaved, seed=608),
    "speaks_before_it_is_flushed": Switch(POWER, world=SpeaksBeforeItIsFlushed, seed=1),
    "believes_what_it_finds": Switch(POWER, world=BelievesWhatItFinds, seed=30),
    "keeps_the_disks_name": Switch(EMPTIED, world=KeepsTheDisksName, seed=49),
    "keeps_its_start": Switch(SAID_TWICE, world=KeepsItsStart, seed=12),
    "forgets_the_mark": Switch(DAMAGED, world=ForgetsTheMark, seed=194),
}


def search(name: str, seeds: range) -> tuple[int, str] | None:
    """The first seed that shows a violation without the rule, and the violation; None when there is none."""
    switch = SWITCHES[name]
    return first_violation(switch.scenario, switch.rules(), switch.world, seeds=seeds)


def main(arguments: Sequence[str] | None = None, say: Callable[[str], None] = print) -> int:
    """Search for all of them, or for those named; returns the number not found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=20_000)
    parser.add_argument("names", nargs="*")
    options = parser.parse_args(arguments)
    missing = 0
    for name in options.names or SWITCHES:
        began = time.process_time()
        found = search(name, range(1, options.seeds + 1))
        missing += found is None
        seed, what = found or (0, "NOT FOUND")
        say(f"| {name} | {seed} | {time.process_time() - began:.2f} s | {what} |")
    return missing


if __name__ == "__main__":
    raise SystemExit(main())
