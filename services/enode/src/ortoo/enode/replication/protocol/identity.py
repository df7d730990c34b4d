"""Identities (a replica by its disk, a process by its start), and the configuration of a replica set."""

from dataclasses import dataclass
from typing import NamedTuple


class ReplicaId(NamedTuple):
    """A replica of an enode. An emptied disk gets a new id: it is a different replica, which has never voted."""

    number: int
    disk: str
    """A random id, created with the data folder and stored in it."""


class Incarnation(NamedTuple):
    """One start of a replica, which does not know the messages and in-memory state of earlier starts."""

    replica: ReplicaId
    incarnation: int
    """Grows with every start."""


NO_LEADER = Incarnation(ReplicaId(0, ""), 0)


class Tail(NamedTuple):
    """The end of a log. The greater tail is more recent: by epoch, then by position."""

    epoch: int
    """The epoch of the last frame; 0 for an empty log."""
    position: int
    """The end of the last frame."""


@dataclass(frozen=True, slots=True)
class Configuration:
    """The replicas of an enode, from a CONFIGURATION frame."""

    voters: tuple[ReplicaId, ...] = ()
    learners: tuple[ReplicaId, ...] = ()
    """Replicas that get the log but have no vote, until they have caught up and become voters."""

    @property
    def majority(self) -> int:
        """The size of a quorum: more than half of the voters, so that any two quorums intersect (Gifford 1979)."""
        return len(self.voters) // 2 + 1

    @property
    def replicas(self) -> tuple[ReplicaId, ...]:
        """All replicas that get the log."""
        return self.voters + self.learners


@dataclass(frozen=True, slots=True)
class HardState:
    """The hard state of a replica: its vote. Its file is written whole and synced before the vote is sent."""

    epoch: int = 0
    """The highest epoch voted in. Messages of lower epochs are rejected."""
    leader: Incarnation = NO_LEADER
    """The candidate voted for."""
    unsynced_tail: Tail = Tail(0, 0)
    """The end of the log that this disk had acknowledged before it lost or dropped frames; no effect below its tail."""
