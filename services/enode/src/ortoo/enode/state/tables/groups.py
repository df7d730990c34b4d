"""The groups that have any state: when each last used a topic, and which are declared."""

from collections.abc import Iterator
from typing import ClassVar

from ortoo.enode.changes.groups import GroupDeclared, GroupSeen, GroupsEnded
from ortoo.enode.state.table import GroupTable

DIRECTORIES_MAX = 16


class Groups(GroupTable[int]):
    """Topic id to group to its last use of the topic, by the log's time; 0 = before this was recorded."""

    def __init__(self) -> None:
        """Begin empty."""
        super().__init__()
        self.declared: set[str] = set()
        """Groups that any directory reported as declared, until their deletion is carried out."""
        self._ended: dict[str, int] = {}

    def seen_at_ms(self, topic_id: int, group: str) -> int | None:
        """When a group last used a topic; None if it has no state there."""
        return self._topics.get(topic_id, {}).get(group)

    def ended(self, directory_id: str) -> int | None:
        """The version of a directory up to which deletions are carried out; None if it is unknown."""
        return self._ended.get(directory_id)

    def use(self, topic_id: int, group: str, at_ms: int) -> None:
        """Note a use of a topic by a group; times are recorded only once a directory is known."""
        groups = self._topics.setdefault(topic_id, {})
        groups[group] = max(groups.get(group, 0), at_ms if self._ended else 0)

    def checkpoint(self) -> Iterator[bytes]:
        """The whole as encoded changes."""
        for topic_id, group, at_ms in self.drawn():
            if at_ms:
                yield GroupSeen(topic_id, group, at_ms).encoded()
        for group in sorted(self.declared):
            yield GroupDeclared(True, group).encoded()
        for directory_id, version in list(self._ended.items()):
            yield GroupsEnded(version, directory_id).encoded()

    def _see(self, change: GroupSeen) -> None:
        groups = self._topics.setdefault(change.topic_id, {})
        groups[change.group] = max(groups.get(change.group, 0), change.seen_at_ms)

    def _declare(self, change: GroupDeclared) -> None:
        (self.declared.add if change.is_declared else self.declared.discard)(change.group)

    def _end(self, change: GroupsEnded) -> None:
        self._ended[change.directory_id] = max(change.version, self._ended.pop(change.directory_id, 0))
        while len(self._ended) > DIRECTORIES_MAX:
            del self._ended[next(iter(self._ended))]

    FOLDS: ClassVar = {GroupSeen: _see, GroupDeclared: _declare, GroupsEnded: _end}
