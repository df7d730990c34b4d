"""Rules of the protocol and duties of its driver, switched off one by one: the explorer has to find what goes wrong.

python -m tests.simulation.members.switched_off [--seeds N] [NAME...]
"""

import argparse
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from ortoo.enode.members.driver import Event, Flushed, ReignSaved, SaveReign
from ortoo.enode.members.identity import Configuration, MemberId, Process, Reign, Tail
from ortoo.enode.members.log_outline import History, LogOutline
from ortoo.enode.members.messages import MatchAnswer, Promise
from ortoo.enode.members.roles import Leader, Stream
from ortoo.enode.members.rules import Rules
from tests.simulation.members.walk import TURNS, Scenario, first_violation
from tests.simulation.members.world import Machine, World

NO_LEASES = Scenario(lease_s=0.0)
"""So that there are more elections."""
CALM = replace(NO_LEASES, weights={**TURNS, "power": 0.3})
SLOW = replace(CALM, steps=400, weights={**TURNS, "isolate": 4, "heal": 2, "power": 0.3}, window_bytes=1)
RESTARTS = replace(NO_LEASES, weights={"kill": 3, "power": 3, "start": 20, "propose": 10, "usurp": 6})
OLD_ANSWERS = replace(
    RESTARTS,
    weights={"kill": 3, "power": 3, "start": 20, "late": 5, "send": 12},
    doubled=1.0,
    comes_late=(MatchAnswer,),
)
SAID_TWICE = replace(
    RESTARTS,
    weights={"power": 4, "start": 30, "propose": 10, "late": 6, "send": 12, "disk": 14, "isolate": 0},
    said_twice=0.7,
    doubled=1.0,
    comes_late=(Promise,),
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
    steps=120,
    weights={**NOTHING_ELSE, "usurp": 8, "isolate": 8, "heal": 0.5, "change": 10, "deliver": 40, "tick": 1},
    window_bytes=3,
    lost=0.0,
    doubled=0.0,
)
"""Two leaders of four change the members behind each other's backs: a rare walk, so nothing else happens in it."""
LEASES = Scenario(
    steps=300,
    silence_s=60.0,
    weights={"tick": 6, "usurp": 5, "isolate": 3, "heal": 2, "kill": 0, "power": 0, "send": 12, "hand_over": 0},
)


@dataclass(frozen=True)
class Switch:
    """One thing that is not done, and where that is looked for."""

    scenario: Scenario
    rules: type[Rules] = Rules
    world: type[World] = World
    seed: int = 1
    """The first that shows it; this module's command says it anew when the protocol or the walks change."""


# rules


class PromisesTwice(Rules):
    """An epoch is promised to each who asks."""

    def may_promise(self, reign: Reign, epoch: int, candidate: Process) -> bool:
        return epoch >= reign.epoch


class PromisesDownwards(Rules):
    """An epoch is promised although a higher one was."""

    def may_promise(self, reign: Reign, epoch: int, candidate: Process) -> bool:
        return epoch != reign.epoch or candidate == reign.leader


class PromisesToALaterStart(Rules):
    """A candidate that was started again gets the epoch that an earlier start of it had."""

    def may_promise(self, reign: Reign, epoch: int, candidate: Process) -> bool:
        return epoch > reign.epoch or (epoch == reign.epoch and candidate.member == reign.leader.member)


class BreaksTheSilence(Rules):
    """A promise is given although a leader reads by the lease that this member gave."""

    def may_break_silence(self, now_s: float, lease_until_s: float) -> bool:
        return True


class CountsEmptiedDisks(Rules):
    """A member votes by its number, whatever its disk has forgotten."""

    def counts_vote(self, members: Configuration, voter: Process) -> bool:
        return voter.member.number in {one.number for one in members.voters}


class HalfIsEnough(Rules):
    """Two halves of the voters need not share one."""

    def is_enough(self, members: Configuration, count: int) -> bool:
        return count >= len(members.voters) // 2


class LeadsWithLess(Rules):
    """A voter that has more than the candidate counts."""

    def is_ahead(self, theirs: Tail, own: Tail) -> bool:
        return False


class ComparesLengths(Rules):
    """The longer log counts as the more recent one."""

    def is_ahead(self, theirs: Tail, own: Tail) -> bool:
        return theirs.position > own.position


class ForgetsWhatItOwes(Rules):
    """A voter whose disk lost what it had acknowledged says only what is left."""

    def claimed_tail(self, log: LogOutline, reign: Reign) -> Tail:
        return log.tail


class LeadsWithAHole(Rules):
    """A member leads that lost what it had acknowledged."""

    def is_electable(self, log: LogOutline, reign: Reign) -> bool:
        return True


class ObeysTheOld(Rules):
    """Frames and heartbeats of a lower epoch than the promised one are taken."""

    def obeys(self, reign: Reign, epoch: int) -> bool:
        return True


class CountsWhatIsNotFlushed(Rules):
    """The leader counts its own disk before it has flushed."""

    def commit_position(self, log: LogOutline, leader: Leader, me: MemberId) -> int:
        return super().commit_position(replace(log, flushed=log.appended), leader, me)


class CommitsOldEpochs(Rules):
    """Frames of older epochs count as committed when a majority has them."""

    def commits(self, leader: Leader, position: int) -> bool:
        return True


class ServesAtOnce(Rules):
    """A leader answers before its EPOCH frame is committed."""

    def may_serve(self, leader: Leader, committed: int) -> bool:
        return leader.epoch_end > 0


class BelievesCommitUnmatched(Rules):
    """A follower takes what the leader says is committed for its own log before the two are one."""

    def follower_commit(self, log: LogOutline, said: int, *, is_matched: bool) -> int:
        return super().follower_commit(log, said, is_matched=True)


class MatchesByLength(Rules):
    """Two logs count as one up to where the shorter ends."""

    def agreed_end(self, own: History, own_end: int, largest: int, end: int) -> int | None:
        return min(own_end, end)


class MatchesItsOwnEnd(Rules):
    """A follower cuts only what is of an epoch that the leader has not, as with a high watermark alone."""

    def agreed_end(self, own: History, own_end: int, largest: int, end: int) -> int | None:
        return own.end_of(largest, own_end)


class HearsOldAnswers(Rules):
    """An answer counts that was given to an earlier start of the follower."""

    def is_answered(self, me: Process, stream: int, follower: Process, answered: int) -> bool:
        return True


class CountsUnmatched(Rules):
    """What a follower has counts before its log is the leader's."""

    def counted_position(self, stream: Stream | None) -> int:
        return max(stream.flushed, stream.sent) if stream else 0


class ChangesTwice(Rules):
    """A second change of the members begins before the first is committed."""

    def change_refusal(self, leader: Leader, log: LogOutline) -> str:
        return "" if self.may_serve(leader, log.committed) else "not yet"


class ChangesAtOnce(Rules):
    """A leader changes the members before a frame of its epoch is committed."""

    def change_refusal(self, leader: Leader, log: LogOutline) -> str:
        return "" if log.placed[-1].end <= log.committed and leader.epoch_end else "not yet"


class JoinsEmpty(Rules):
    """A joiner votes before it has what is committed."""

    def is_caught_up(self, log: LogOutline, learner: Stream) -> bool:
        return True


class ChangesWhenCommitted(Rules):
    """New members count only when their frame is committed."""

    def in_force(self, log: LogOutline) -> Configuration:
        return log.placed[0].configuration


class LeasesFromTheAnswer(Rules):
    """A leader reads by its last heartbeat, whoever has answered it."""

    def read_lease_until(self, leader: Leader, rounds: Sequence[int], majority: int, lease_s: float) -> float:
        return max((sent_s for _, sent_s in leader.rounds), default=-lease_s) + lease_s


# duties of the driver


class SpeaksBeforeItIsSaved(World):
    """A promise is said before it is on disk."""

    def feed(self, number: int, event: Event) -> None:
        super().feed(number, event)
        for task in self.machines[number].work:
            if isinstance(task, SaveReign):
                super().feed(number, ReignSaved(task.reign))


class SpeaksBeforeItIsFlushed(World):
    """Frames count as flushed when they are written."""

    def feed(self, number: int, event: Event) -> None:
        super().feed(number, event)
        for task in self.machines[number].work:
            if isinstance(task, Flushed):
                super().feed(number, task)


class BelievesWhatItFinds(World):
    """What is found at a start counts as flushed, though it may be in memory alone."""

    def start(self, number: int) -> None:
        super().start(number)
        flushed = self.machines[number].work[0]
        assert isinstance(flushed, Flushed)
        self.feed(number, flushed)


class KeepsTheDisksName(World):
    """An emptied disk has the id that it had."""

    def new_disk_id(self, machine: Machine) -> str:
        return machine.disk_id


class KeepsItsStart(World):
    """A process that is started again has the incarnation that it had."""

    def next_incarnation(self, machine: Machine) -> int:
        return 1


class ForgetsTheMark(World):
    """A start that finds less than was flushed once writes down that this is all."""

    def start(self, number: int) -> None:
        super().start(number)
        machine, member = self.machines[number], self.up(number)
        reign = replace(member.reign, owed=Tail(0, 0))
        machine.disk = replace(machine.disk, reign=reign, flushed=min(machine.disk.flushed, member.log.tail))
        machine.member = replace(member, reign=reign)


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
    "speaks_before_it_is_saved": Switch(UNSAVED, world=SpeaksBeforeItIsSaved, seed=608),
    "speaks_before_it_is_flushed": Switch(POWER, world=SpeaksBeforeItIsFlushed, seed=1),
    "believes_what_it_finds": Switch(POWER, world=BelievesWhatItFinds, seed=30),
    "keeps_the_disks_name": Switch(EMPTIED, world=KeepsTheDisksName, seed=49),
    "keeps_its_start": Switch(SAID_TWICE, world=KeepsItsStart, seed=12),
    "forgets_the_mark": Switch(DAMAGED, world=ForgetsTheMark, seed=194),
}


def search(name: str, seeds: range) -> tuple[int, str] | None:
    """The first seed that shows what is lost without it, and what; None when none does."""
    switch = SWITCHES[name]
    return first_violation(switch.scenario, switch.rules(), switch.world, seeds=seeds)


def main(arguments: Sequence[str] | None = None, say: Callable[[str], None] = print) -> int:
    """Search for all of them, or for those named; returns how many were not found."""
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
