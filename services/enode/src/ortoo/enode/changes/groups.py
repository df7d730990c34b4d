"""State changes about groups themselves; kinds 128 to 131, which older processes pass over."""

from dataclasses import dataclass

from ortoo.enode.changes.codec import I64, U64, Change, Flag


@dataclass(frozen=True, slots=True)
class GroupSeen(Change):
    """A group used a topic at this time; written now and then for those whose use leaves nothing else in the log."""

    topic_id: U64
    group: str
    seen_at_ms: I64


@dataclass(frozen=True, slots=True)
class GroupDeclared(Change):
    """Somebody declared a group, or its deletion was carried out and nobody has again since."""

    is_declared: Flag
    group: str


@dataclass(frozen=True, slots=True)
class GroupGone(Change):
    """Everything that was kept of a group in a topic is dropped."""

    topic_id: U64
    group: str


@dataclass(frozen=True, slots=True)
class GroupsEnded(Change):
    """The deletions of groups that were due in this version of a directory, and before, are carried out; 0 = none."""

    version: U64
    directory_id: str
