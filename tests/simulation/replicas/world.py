"""A few replicas with their disks and the messages between them; the invariants are checked after every step."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from ortoo.enode.replication.protocol.events import (
    Action,
    AppendConfiguration,
    AppendEpoch,
    ApplyCommitted,
    BecomeLeader,
    Contradicted,
    DeleteBelow,
    Event,
    Flushed,
    FramesSent,
    HardStateSaved,
    LogAppended,
    ReportLeaderSilent,
    RequestElection,
    Reset,
    SaveHardState,
    Send,
    SendFrames,
    Tick,
    Truncate,
    Truncated,
    WriteFrames,
)
from ortoo.enode.replication.protocol.identity import Configuration, Incarnation, ReplicaId
from ortoo.enode.replication.protocol.log_summary import LogBase
from ortoo.enode.replication.protocol.messages import Frames, Message
from ortoo.enode.replication.protocol.replica import Replica, ReplicationLimits
from ortoo.enode.replication.protocol.roles import Leader
from ortoo.enode.replication.protocol.rules import Rules
from ortoo.enode.replication.protocol.step import step
from tests.simulation.replicas.disk_of_frames import DiskOfFrames, Entry, marks_of

NETWORK_MAX = 24


class Violation(Exception):
    """An event that must never happen."""


@dataclass(slots=True)
class Machine:
    """One machine, on which a replica runs or not."""

    number: int
    disk: DiskOfFrames
    disk_id: str
    incarnation: int = 0
    starts: int = 0
    """The number of processes started here, independent of its incarnation."""
    member: Replica | None = None
    work: tuple[Action | Flushed, ...] = ()
    """Pending work of the disk, in this order."""
    is_wiped: bool = False

    @property
    def id(self) -> ReplicaId:
        """The replica of this disk."""
        return ReplicaId(self.number, self.disk_id)


@dataclass(slots=True)
class World:
    """The whole state. A search copies it before a step; a walk changes it."""

    rules: Rules
    limits: ReplicationLimits
    machines: dict[int, Machine]
    network: tuple[tuple[int, Message], ...] = ()
    now_s: float = 0.0
    cut_off: frozenset[int] = frozenset()
    """Machines that reach only each other."""
    suggestions: tuple[tuple[int, ReplicaId], ...] = ()
    """The proposals of name servers: the epoch to exceed, and the leader."""
    following: list[tuple[int, Event]] = field(default_factory=list)
    """Events that a replica gets before anything else happens."""
    messages_sent: int = 0
    epochs_proposed: int = 0
    disks_made: int = 0
    wipes: int = 0
    truth: list[Entry] = field(default_factory=list)
    """Frames committed by a leader, by position. They may never change."""
    leaders: dict[int, tuple[Incarnation, int]] = field(default_factory=dict)
    """The leader of each epoch, and its start."""
    held: set[tuple[ReplicaId, int, Entry]] = field(default_factory=set)
    """Every frame that each disk ever held durably."""

    @classmethod
    def started(cls, voters: int, joiners: int, rules: Rules, limits: ReplicationLimits) -> "World":
        """Machines with empty disks, of which the first are voters."""
        ids = tuple(ReplicaId(number, f"disk-{number}") for number in range(1, voters + joiners + 1))
        base = LogBase(0, 0, Configuration(ids[:voters]))
        nothing = LogBase(0, 0, Configuration())
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
        """An independent copy."""
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

    def up(self, number: int) -> Replica:
        """The running replica of a machine."""
        member = self.machines[number].member
        assert member is not None
        return member

    def running(self) -> list[int]:
        """The machines with a running replica."""
        return [number for number, machine in self.machines.items() if machine.member is not None]

    # Events.

    def start(self, number: int) -> None:
        """A process starts, scans its log, records missing frames durably, and lets the disk sync the found ones."""
        machine = self.machines[number]
        machine.starts += 1
        machine.incarnation = self.next_incarnation(machine)
        end = self.log_end(machine.disk)
        view = machine.disk.outline(end)
        reign = machine.disk.reign
        if view.tail < machine.disk.flushed:
            reign = replace(reign, unsynced_tail=max(reign.unsynced_tail, machine.disk.flushed))
            machine.disk = replace(machine.disk, reign=reign)
        me = Incarnation(machine.id, machine.incarnation)
        machine.member = Replica.initial(me, view, reign, self.now_s, rules=self.rules, limits=self.limits)
        machine.work = (Flushed(0, end),)

    def kill(self, number: int) -> None:
        """The process ends; its written frames stay in the memory of the machine."""
        self.machines[number].member = None
        self.machines[number].work = ()

    def power_cut(self, number: int, stays: Callable[[], bool]) -> None:
        """The machine loses power."""
        self.kill(number)
        self.machines[number].disk = self.machines[number].disk.power_cut(stays)

    def wipe(self, number: int) -> None:
        """The disk is emptied or replaced."""
        self.kill(number)
        machine = self.machines[number]
        machine.disk = DiskOfFrames(LogBase(0, 0, Configuration()))
        self.disks_made += 1
        machine.disk_id = self.new_disk_id(machine)
        machine.is_wiped = True
        self.wipes += 1

    def damage(self, number: int, position: int) -> None:
        """A durable frame becomes unreadable; the process that notices it ends."""
        self.kill(number)
        self.machines[number].disk = self.machines[number].disk.damaged(position)
        self.wipes += 1

    def deliver(self, index: int) -> None:
        """A message arrives."""
        to, message = self.network[index]
        self.lose(index)
        self.arrive(to, message)

    def arrive(self, to: int, message: Message) -> None:
        """A message arrives, at the process that runs there now."""
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
        """A leader that accepts it appends a client's message."""
        self.messages_sent += 1
        self._append(number, Entry(self.up(number).hard_state.epoch, self.messages_sent))

    def move_begin(self, number: int, position: int) -> None:
        """A leader permits the deletion of frames below `position`."""
        self._append(number, Entry(self.up(number).hard_state.epoch, f"begin {position}"))

    def _append(self, number: int, entry: Entry) -> None:
        machine, member = self.machines[number], self.up(number)
        end = member.log.appended
        machine.disk = machine.disk.write(end, (entry,))
        machine.work = (*machine.work, Flushed(member.log.truncations, end + 1))
        self.feed(number, LogAppended(end + 1, marks_of((entry,), end)))

    def disk_works(self, number: int) -> None:
        """The disk does the next piece of its work, and reports it."""
        machine = self.machines[number]
        task, machine.work = machine.work[0], machine.work[1:]
        if isinstance(task, SaveHardState):
            machine.disk = replace(machine.disk, reign=task.hard_state)
            self.feed(number, HardStateSaved(task.hard_state))
        elif isinstance(task, Truncate):
            machine.disk = machine.disk.cut(task.position)
            self.feed(number, Truncated(task.truncations))
        elif isinstance(task, Reset):
            machine.disk = machine.disk.restart(task.base)
            self.feed(number, Truncated(task.truncations))
        elif isinstance(task, Flushed) and task.truncations == self.up(number).log.truncations:
            machine.disk = machine.disk.sync(task.position)
            begin = machine.disk.base.position
            for place, entry in enumerate(machine.disk.read(begin, task.position), begin):
                self.held.add((machine.id, place, entry))
            self.feed(number, task)

    def feed(self, number: int, event: Event) -> None:
        """Let a replica handle an event, execute its actions and the following events, then check the invariants."""
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
        """Execute an action of a replica; `leads` is whether it led before the event."""
        machine, member = self.machines[number], self.up(number)
        if isinstance(action, Send):
            self._carry(number, action.to.number, action.message)
        elif isinstance(action, SendFrames):
            entries = machine.disk.read(action.begin, action.limit)
            marks = marks_of(entries, action.begin)
            committed = member.log.committed
            epoch = member.hard_state.epoch
            frames = Frames(epoch, action.to, action.stream, action.begin, action.limit, marks, committed, entries)
            self._carry(number, action.to.replica.number, frames)
            self.feed(number, FramesSent(action.to, action.stream, action.limit))
        elif isinstance(action, WriteFrames):
            assert isinstance(action.content, tuple)
            machine.disk = machine.disk.write(action.begin, action.content)
            machine.work = (*machine.work, Flushed(member.log.truncations, action.end))
        elif isinstance(action, SaveHardState | Truncate | Reset):
            machine.work = (*machine.work, action)
        elif isinstance(action, AppendEpoch):
            self._check_leader(number, action.epoch)
            self._append(number, Entry(action.epoch, "epoch"))
        elif isinstance(action, AppendConfiguration):
            self._check_joiners(number, action.configuration)
            self._append(number, Entry(member.hard_state.epoch, action.configuration))
        elif isinstance(action, ApplyCommitted):
            self._check_committed(number, action.position, leads=leads)
        elif isinstance(action, DeleteBelow):
            machine.disk = machine.disk.delete_below(member.log.base)
        elif isinstance(action, BecomeLeader):
            self._check_complete(number)
        elif isinstance(action, RequestElection):
            self._suggest(action.above, action.leader)
        elif isinstance(action, ReportLeaderSilent) and member.rules.is_electable(member.log, member.hard_state):
            self._suggest(member.hard_state.epoch, machine.id)

    def _suggest(self, above: int, leader: ReplicaId) -> None:
        self.suggestions = (*self.suggestions[-3:], (above, leader))

    def _carry(self, sender: int, to: int, message: Message) -> None:
        if to in self.machines and (sender in self.cut_off) == (to in self.cut_off):
            self.network = (*self.network[1 - NETWORK_MAX :], (to, message))

    # Duties of the driver, which tests break.

    def next_incarnation(self, machine: Machine) -> int:
        """A new one for each start."""
        return machine.incarnation + 1

    def new_disk_id(self, machine: Machine) -> str:
        """A new one for each disk."""
        return f"disk-{self.disks_made}"

    def log_end(self, disk: DiskOfFrames) -> int:
        """The end of a log at its opening."""
        return disk.log_end()

    # Invariants.

    def _check_leader(self, number: int, epoch: int) -> None:
        me = (self.up(number).identity, self.machines[number].starts)
        if self.leaders.setdefault(epoch, me) != me:
            raise Violation(f"two starts lead epoch {epoch}: {self.leaders[epoch]} and {me}")

    def _check_committed(self, number: int, position: int, *, leads: bool) -> None:
        machine, member = self.machines[number], self.up(number)
        begin = machine.disk.base.position
        voters = member.log.configuration
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
        for voter in set(members.voters) - set(log.configuration.voters):
            for place in range(log.begin, log.committed):
                if (voter, place, self.truth[place]) not in self.held and place >= self._begin_of(voter):
                    raise Violation(f"member {voter.number} becomes a voter without the frame at {place}")

    def _begin_of(self, member: ReplicaId) -> int:
        return self.machines[member.number].disk.base.position

    def _check_complete(self, number: int) -> None:
        machine, member = self.machines[number], self.up(number)
        begin = machine.disk.base.position
        log = machine.disk.read(begin, member.log.appended)
        if list(log[: len(self.truth) - begin]) != self.truth[begin:]:
            raise Violation(f"member {number} leads epoch {member.hard_state.epoch} without all that was committed")

    def _check_reads(self, number: int) -> None:
        member = self.up(number)
        if isinstance(member.role, Leader) and member.may_read(self.now_s) and member.log.committed < len(self.truth):
            raise Violation(
                f"member {number} answers reads from {member.log.committed} in epoch {member.hard_state.epoch}, and "
                f"{len(self.truth)} are committed"
            )


class PromisesFirst(World):
    """Another file is another queue: votes are on disk before pending changes of the log."""

    def disk_works(self, number: int) -> None:
        """Do the oldest work first, votes before all else."""
        machine = self.machines[number]
        machine.work = tuple(sorted(machine.work, key=lambda task: not isinstance(task, SaveHardState)))
        super().disk_works(number)
