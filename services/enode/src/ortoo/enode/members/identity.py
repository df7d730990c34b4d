"""Who is who: members by their disks, processes by their starts, and the members that an enode has."""

from dataclasses import dataclass
from typing import NamedTuple


class MemberId(NamedTuple):
    """A member of an enode. An emptied disk gets a new id, and with it is another member, which promised nothing."""

    number: int
    disk: str
    """Made at random when the folder was claimed, and kept in it."""


class Process(NamedTuple):
    """One start of a member: what an earlier start said or promised in memory is not known to it."""

    member: MemberId
    incarnation: int
    """Grows with every start."""


NOBODY = Process(MemberId(0, ""), 0)


class Tail(NamedTuple):
    """Where a log ends. The greater one is the more recent: the later epoch, and within it the longer log."""

    epoch: int
    """Of the last frame; 0 for an empty log."""
    position: int
    """Behind the last frame."""


@dataclass(frozen=True, slots=True)
class Configuration:
    """The members of an enode, as a MEMBERS frame says them."""

    voters: tuple[MemberId, ...] = ()
    learners: tuple[MemberId, ...] = ()
    """They get the log and count for nothing, until they have it and are made voters."""

    @property
    def majority(self) -> int:
        """How many voters decide: more than half, so that any two majorities share one (Gifford 1979)."""
        return len(self.voters) // 2 + 1

    @property
    def everybody(self) -> tuple[MemberId, ...]:
        """All who get the log."""
        return self.voters + self.learners


@dataclass(frozen=True, slots=True)
class Reign:
    """What a member has promised. It lies in a file that is written whole and synced before anybody hears of it."""

    epoch: int = 0
    """The highest epoch promised. The member obeys nobody below it."""
    leader: Process = NOBODY
    """To whom it was promised."""
    owed: Tail = Tail(0, 0)
    """The end of what this disk had acknowledged once and then lost or gave up; nothing when smaller than its log."""
