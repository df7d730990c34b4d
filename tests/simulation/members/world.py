"""A few members with their disks and what is on its way between them; every step is looked at by the invariants."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from ortoo.enode.members.driver import (
    Action,
    Appended,
    AppendEpoch,
    AppendMembers,
    Committed,
    Contradicted,
    Cut,
    CutDone,
    DeleteBelow,
    Event,
    Flushed,
    Lead,
    LeaderSilent,
    ReignSaved,
    Restart,
    SaveReign,
    Send,
    Ship,
    Shipped,
    Suggest,
    Tick,
    Write,
)
from ortoo.enode.members.identity import Configuration, MemberId, Process
from ortoo.enode.members.log_outline import Base
from ortoo.enode.members.member import Limits, Member
from ortoo.enode.members.messages import Frames, Message
from ortoo.enode.members.protocol import step
from ortoo.enode.members.roles import Leader
from ortoo.enode.members.rules import Rules
from tests.simulation.members.disk_of_frames import DiskOfFrames, Entry, marks_of

NETWORK_MAX = 24


class Violation(Exception):
    """Something happened that must never happen."""


@dataclass(slots=True)
class Machine:
    """One place where a member runs, or does not."""

    number: int
    disk: DiskOfFrames
    disk_id: str
    incarnation: int = 0
    starts: int = 0
    """How often a process was started here, whatever it takes its incarnation for."""
    member: Member | None = None
    work: tuple[Action | Flushed, ...] = ()
    """What the disk still has to do, in this order."""
    is_wiped: bool = False

    @property
    def id(self) -> MemberId:
        """The member that this disk is."""
        return MemberId(self.number, self.disk_id)


@dataclass(slots=True)
class World:
    """Everything there is. It is copied before a step of a search; of a walk it is changed."""

    rules: Rules
    limits: Limits
    machines: dict[int, Machine]
    network: tuple[tuple[int, Message], ...] = ()
    now_s: float = 0.0
    cut_off: frozenset[int] = frozenset()
    """Machines that hear only each other."""
    suggestions: tuple[tuple[int, MemberId], ...] = ()
    """What name servers would propose now: above which epoch, and whom."""
    following: list[tuple[int, Event]] = field(default_factory=list)
    """Events that a member hears before anything else happens."""
    messages_sent: int = 0
    epochs_proposed: int = 0
    disks_made: int = 0
    wipes: int = 0
    truth: list[Entry] = field(default_factory=list)
    """What was committed by a leader, by position. Nothing of it may ever change."""
    leaders: dict[int, tuple[Process, int]] = field(default_factory=dict)
    """Who has led which epoch, and in which start."""
    held: set[tuple[MemberId, int, Entry]] = field(default_factory=set)
    """What each disk has ever had for good."""

    @classmethod
    def started(cls, voters: int, joiners: int, rules: Rules, limits: Limits) -> "World":
        """Machines with empty disks, of which the first are voters."""
        ids = tuple(MemberId(number, f"disk-{number}") for number in range(1, voters + joiners + 1))
        base = Base(0, 0, Configuration(ids[:voters]))
        nothing = Base(0, 0, Configuration())
        machines = {
            one.number: Machine(one.number, DiskOfFrames(base if one in ids[:voters] else nothing), one.disk)
            for one in ids
        }
        world = cls(rules, limits, machines, disks_made=len(ids))
        for number in machines:
            world.start(number)
            world.machines[number].member = replace(world.up(number), lease_until_s=0.0)
        return world

    def copy(self) -> "World":
        """The same, to be changed without this one."""
        machines = {number: replace(machine) for number, machine in self.machines.items()}
        copies = {"truth": list(self.truth), "leaders": dict(self.leaders), "held": set(self.held)}
        return replace(self, machines=machines, **copies)  # type: ignore[arg-type]

    def key(self) -> int:
        """Equal for worlds in which the same can happen."""
        machines = tuple(
            (one.disk, one.disk_id, one.incarnation, one.member, one.work) for one in self.machines.values()
        )
        rest = (frozenset(self.network), self.now_s, self.cut_off, self.wipes, self.messages_sent, tuple(self.truth))
        return hash((machines, rest))

    def up(self, number: int) -> Member:
        """The member that runs there."""
        member = self.machines[number].member
        assert member is not None
        return member

    def running(self) -> list[int]:
        """Where members run."""
        return [number for number, machine in self.machines.items() if machine.member is not None]

    # what happens

    def start(self, number: int) -> None:
        """A process starts, scans its log, notes for good what is missing, and has the disk sync what it found."""
        machine = self.machines[number]
        machine.starts += 1
        machine.incarnation = self.next_incarnation(machine)
        end = self.log_end(machine.disk)
        view = machine.disk.outline(end)
        reign = machine.disk.reign
        if view.tail < machine.disk.flushed:
            reign = replace(reign, owed=max(reign.owed, machine.disk.flushed))
            machine.disk = replace(machine.disk, reign=reign)
        me = Process(machine.id, machine.incarnation)
        machine.member = Member.started(me, view, reign, self.now_s, rules=self.rules, limits=self.limits)
        machine.work = (Flushed(0, end),)

    def kill(self, number: int) -> None:
        """The process ends; what it wrote stays in the memory of the machine."""
        self.machines[number].member = None
        self.machines[number].work = ()

    def power_cut(self, number: int, stays: Callable[[], bool]) -> None:
        """The machine ends."""
        self.kill(number)
        self.machines[number].disk = self.machines[number].disk.power_cut(stays)

    def wipe(self, number: int) -> None:
        """The disk is emptied, or another one is put in."""
        self.kill(number)
        machine = self.machines[number]
        machine.disk = DiskOfFrames(Base(0, 0, Configuration()))
        self.disks_made += 1
        machine.disk_id = self.new_disk_id(machine)
        machine.is_wiped = True
        self.wipes += 1

    def damage(self, number: int, position: int) -> None:
        """A frame that was on disk cannot be read any more; the process that notices it ends."""
        self.kill(number)
        self.machines[number].disk = self.machines[number].disk.damaged(position)
        self.wipes += 1

    def deliver(self, index: int) -> None:
        """A message arrives."""
        to, message = self.network[index]
        self.lose(index)
        self.arrive(to, message)

    def arrive(self, to: int, message: Message) -> None:
        """A message is there, for whichever process runs there now."""
        if self.machines[to].member is not None:
            self.feed(to, message)

    def lose(self, index: int) -> None:
        """A message never arrives."""
        self.network = self.network[:index] + self.network[index + 1 :]

    def tick(self, by_s: float = 0.25) -> None:
        """Time passes."""
        self.now_s += by_s
        for number in self.running():
            self.feed(number, Tick())

    def send(self, number: int) -> None:
        """A client's message is appended by a leader that takes it."""
        self.messages_sent += 1
        self._append(number, Entry(self.up(number).reign.epoch, self.messages_sent))

    def move_begin(self, number: int, position: int) -> None:
        """A leader says that what lies below may be deleted."""
        self._append(number, Entry(self.up(number).reign.epoch, f"begin {position}"))

    def _append(self, number: int, entry: Entry) -> None:
        machine, member = self.machines[number], self.up(number)
        end = member.log.appended
        machine.disk = machine.disk.write(end, (entry,))
        machine.work = (*machine.work, Flushed(member.log.cuts, end + 1))
        self.feed(number, Appended(end + 1, marks_of((entry,), end)))

    def disk_works(self, number: int) -> None:
        """The disk does the next thing it has to do, and says so."""
        machine = self.machines[number]
        task, machine.work = machine.work[0], machine.work[1:]
        if isinstance(task, SaveReign):
            machine.disk = replace(machine.disk, reign=task.reign)
            self.feed(number, ReignSaved(task.reign))
        elif isinstance(task, Cut):
            machine.disk = machine.disk.cut(task.position)
            self.feed(number, CutDone(task.cuts))
        elif isinstance(task, Restart):
            machine.disk = machine.disk.restart(task.base)
            self.feed(number, CutDone(task.cuts))
        elif isinstance(task, Flushed) and task.cuts == self.up(number).log.cuts:
            machine.disk = machine.disk.sync(task.position)
            begin = machine.disk.base.position
            for place, entry in enumerate(machine.disk.read(begin, task.position), begin):
                self.held.add((machine.id, place, entry))
            self.feed(number, task)

    def feed(self, number: int, event: Event) -> None:
        """Let a member take an event, do what it wants, then what follows at once; and look whether all is well."""
        self.following.append((number, event))
        if len(self.following) > 1:
            return
        while self.following:
            number, event = self.following[0]
            leads = isinstance(self.up(number).role, Leader)
            self.machines[number].member, actions = step(self.up(number), event, self.now_s)
            for action in actions:
                if isinstance(action, Contradicted):
                    raise Violation(f"the leader's log parts at {action.end}: {action.committed} is committed")
                self.act(number, action, leads=leads)
            self.following.pop(0)
        for one in self.running():
            self._check_reads(one)

    def act(self, number: int, action: Action, *, leads: bool) -> None:
        """Do what a member wants that led before it heard of it, or did not."""
        machine, member = self.machines[number], self.up(number)
        if isinstance(action, Send):
            self._carry(number, action.to.number, action.message)
        elif isinstance(action, Ship):
            entries = machine.disk.read(action.begin, action.limit)
            marks = marks_of(entries, action.begin)
            committed = member.log.committed
            epoch = member.reign.epoch
            frames = Frames(epoch, action.to, action.stream, action.begin, action.limit, marks, committed, entries)
            self._carry(number, action.to.member.number, frames)
            self.feed(number, Shipped(action.to, action.stream, action.limit))
        elif isinstance(action, Write):
            assert isinstance(action.content, tuple)
            machine.disk = machine.disk.write(action.begin, action.content)
            machine.work = (*machine.work, Flushed(member.log.cuts, action.end))
        elif isinstance(action, SaveReign | Cut | Restart):
            machine.work = (*machine.work, action)
        elif isinstance(action, AppendEpoch):
            self._check_leader(number, action.epoch)
            self._append(number, Entry(action.epoch, "epoch"))
        elif isinstance(action, AppendMembers):
            self._check_joiners(number, action.configuration)
            self._append(number, Entry(member.reign.epoch, action.configuration))
        elif isinstance(action, Committed):
            self._check_committed(number, action.position, leads=leads)
        elif isinstance(action, DeleteBelow):
            machine.disk = machine.disk.delete_below(member.log.base)
        elif isinstance(action, Lead):
            self._check_complete(number)
        elif isinstance(action, Suggest):
            self._suggest(action.above, action.leader)
        elif isinstance(action, LeaderSilent) and member.rules.is_electable(member.log, member.reign):
            self._suggest(member.reign.epoch, machine.id)

    def _suggest(self, above: int, leader: MemberId) -> None:
        self.suggestions = (*self.suggestions[-3:], (above, leader))

    def _carry(self, sender: int, to: int, message: Message) -> None:
        if to in self.machines and (sender in self.cut_off) == (to in self.cut_off):
            self.network = (*self.network[1 - NETWORK_MAX :], (to, message))

    # what a driver has to do right; tests do it wrong

    def next_incarnation(self, machine: Machine) -> int:
        """Another one for each start."""
        return machine.incarnation + 1

    def new_disk_id(self, machine: Machine) -> str:
        """Another one for each disk."""
        return f"disk-{self.disks_made}"

    def log_end(self, disk: DiskOfFrames) -> int:
        """Where a log ends that is opened."""
        return disk.log_end()

    # what must always be true

    def _check_leader(self, number: int, epoch: int) -> None:
        me = (self.up(number).me, self.machines[number].starts)
        if self.leaders.setdefault(epoch, me) != me:
            raise Violation(f"two starts lead epoch {epoch}: {self.leaders[epoch]} and {me}")

    def _check_committed(self, number: int, position: int, *, leads: bool) -> None:
        machine, member = self.machines[number], self.up(number)
        begin = machine.disk.base.position
        voters = member.log.members
        for place, entry in enumerate(machine.disk.read(begin, position), begin):
            if place < len(self.truth):
                if self.truth[place] != entry:
                    raise Violation(f"committed twice at {place}: {self.truth[place]} and {entry}")
            elif not leads:
                raise Violation(f"member {number} believes {place} committed, and no leader has committed it")
            else:
                copies = sum((voter, place, entry) in self.held for voter in voters.voters)
                if copies < voters.majority:
                    raise Violation(f"committed at {place} with {copies} disks of {len(voters.voters)}: {entry}")
                self.truth.append(entry)

    def _check_joiners(self, number: int, members: Configuration) -> None:
        log = self.up(number).log
        for voter in set(members.voters) - set(log.members.voters):
            for place in range(log.begin, log.committed):
                if (voter, place, self.truth[place]) not in self.held and place >= self._begin_of(voter):
                    raise Violation(f"member {voter.number} becomes a voter without the frame at {place}")

    def _begin_of(self, member: MemberId) -> int:
        return self.machines[member.number].disk.base.position

    def _check_complete(self, number: int) -> None:
        machine, member = self.machines[number], self.up(number)
        begin = machine.disk.base.position
        log = machine.disk.read(begin, member.log.appended)
        if list(log[: len(self.truth) - begin]) != self.truth[begin:]:
            raise Violation(f"member {number} leads epoch {member.reign.epoch} without all that was committed")

    def _check_reads(self, number: int) -> None:
        member = self.up(number)
        if isinstance(member.role, Leader) and member.may_read(self.now_s) and member.log.committed < len(self.truth):
            raise Violation(
                f"member {number} answers reads from {member.log.committed} in epoch {member.reign.epoch}, and "
                f"{len(self.truth)} are committed"
            )


class PromisesFirst(World):
    """Another file is another queue: promises are on disk before what is still to be done to the log."""

    def disk_works(self, number: int) -> None:
        """Do what was asked for first, promises before all else."""
        machine = self.machines[number]
        machine.work = tuple(sorted(machine.work, key=lambda task: not isinstance(task, SaveReign)))
        super().disk_works(number)
