"""The groups that have any state: their last uses of topics, declarations, delivery modes, and names as sinks. Pure."""

from collections.abc import Iterator
from typing import ClassVar

from ortoo.common.errors import Conflict
from ortoo.enode.changes.groups import GroupDeclared, GroupDeletionsDone, GroupMode, GroupUsed, ModeSet
from ortoo.enode.changes.kinds import SinkCommitted
from ortoo.enode.state.table import GroupTable

DIRECTORIES_MAX = 16
_DESCRIPTIONS = {
    GroupMode.OFFSETS: "by offsets (push sessions and pulls)",
    GroupMode.POP: "by pop",
    GroupMode.POP_IN_ORDER: "by pop, in the order of message groups",
}
_NAMES = {
    GroupMode.UNDECIDED: "any",
    GroupMode.OFFSETS: "offsets",
    GroupMode.POP: "pop",
    GroupMode.POP_IN_ORDER: "pop-in-order",
}


class GroupUseTable(GroupTable[int]):
    """The table of last uses: topic id to group to the log's time of its last use of the topic (0 = not recorded)."""

    def __init__(self) -> None:
        """Begin empty."""
        super().__init__()
        self.declared: set[str] = set()
        """Groups that any directory reported as declared, until their deletion is carried out."""
        self._deletions_done: dict[str, int] = {}

    def last_used_ms(self, topic_id: int, group: str) -> int | None:
        """The time of a group's last use of a topic; None if the group has no state there."""
        return self._topics.get(topic_id, {}).get(group)

    def deletions_done(self, directory_id: str) -> int | None:
        """The version of a directory up to which deletions are carried out; None if it is unknown."""
        return self._deletions_done.get(directory_id)

    def record_use(self, topic_id: int, group: str, at_ms: int) -> None:
        """Note a use of a topic by a group; times are recorded only once a directory is known."""
        groups = self._topics.setdefault(topic_id, {})
        groups[group] = max(groups.get(group, 0), at_ms if self._deletions_done else 0)

    def checkpoint(self) -> Iterator[bytes]:
        """The whole table as encoded changes."""
        for topic_id, group, at_ms in self.iterate_live():
            if at_ms:
                yield GroupUsed(topic_id, group, at_ms).encoded()
        for group in sorted(self.declared):
            yield GroupDeclared(True, group).encoded()
        for directory_id, version in list(self._deletions_done.items()):
            yield GroupDeletionsDone(version, directory_id).encoded()

    def _see(self, change: GroupUsed) -> None:
        groups = self._topics.setdefault(change.topic_id, {})
        groups[change.group] = max(groups.get(change.group, 0), change.seen_at_ms)

    def _declare(self, change: GroupDeclared) -> None:
        (self.declared.add if change.is_declared else self.declared.discard)(change.group)

    def _end(self, change: GroupDeletionsDone) -> None:
        self._deletions_done[change.directory_id] = max(
            change.version, self._deletions_done.pop(change.directory_id, 0)
        )
        while len(self._deletions_done) > DIRECTORIES_MAX:
            del self._deletions_done[next(iter(self._deletions_done))]

    FOLDS: ClassVar = {GroupUsed: _see, GroupDeclared: _declare, GroupDeletionsDone: _end}


class ModeTable(GroupTable[GroupMode]):
    """The table of delivery modes: topic id to group to the last mode that was set (absent = undecided)."""

    def of(self, topic_id: int, group: str) -> GroupMode:
        """The mode of a group in a topic."""
        return self._topics.get(topic_id, {}).get(group, GroupMode.UNDECIDED)

    def of_group(self, group: str) -> list[tuple[int, GroupMode]]:
        """(topic id, mode) of a group, by topic id."""
        return sorted((topic_id, modes[group]) for topic_id, modes in self._topics.items() if group in modes)

    def checkpoint(self) -> Iterator[bytes]:
        """The whole table as encoded changes."""
        for one in self.iterate_live():
            yield ModeSet(*one).encoded()

    def _set(self, change: ModeSet) -> None:
        modes = self._topics.setdefault(change.topic_id, {})
        if change.mode is GroupMode.UNDECIDED:
            modes.pop(change.group, None)
        else:
            modes[change.group] = change.mode

    FOLDS: ClassVar = {ModeSet: _set}


class SinkTable(GroupTable[SinkCommitted]):
    """The table of sinks: topic id to the group of the account to the last commit or reset."""

    def of(self, topic_id: int, group: str) -> SinkCommitted | None:
        """The last commit or reset of an account; None if only older versions have written it."""
        return self._topics.get(topic_id, {}).get(group)

    def checkpoint(self) -> Iterator[bytes]:
        """The whole table as encoded changes."""
        return (change.encoded() for _, _, change in self.iterate_live())

    def _commit(self, change: SinkCommitted) -> None:
        self._topics.setdefault(change.topic_id, {})[change.group] = change

    FOLDS: ClassVar = {SinkCommitted: _commit}


def check_mode(stored: GroupMode, requested: GroupMode, *, group: str, topic: str) -> None:
    """Refuse a use that does not match the stored mode. Errors: Conflict, with the remedy."""
    if stored in (GroupMode.UNDECIDED, requested):
        return
    raise Conflict(
        f"group {group} consumes topic {topic} {_DESCRIPTIONS[stored]}; this request consumes it "
        f"{_DESCRIPTIONS[requested]}. Both at "
        f"once would deliver messages twice or never. Use another group, or stop its consumers and change the mode: "
        f"ortoo group mode {group} {topic} --set {_NAMES[requested]} (AdminService/SetDeliveryMode)",
        field="group",
    )
