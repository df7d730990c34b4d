"""The groups that have any state: when a group last used a topic, and whether it is declared."""

from collections.abc import Iterator
from typing import ClassVar

from ortoo.enode.changes.groups import GroupDeclared, GroupDeletionsDone, GroupUsed
from ortoo.enode.state.table import GroupTable

DIRECTORIES_MAX = 16


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
