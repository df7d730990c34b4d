"""A change of the routes, as watchers get it. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ortoo.common.directory.group import Group
from ortoo.common.groups.handle_seal import HandleKeys
from ortoo.namesrv.decisions.deletions import GroupDeletion, TopicDeletion
from ortoo.namesrv.decisions.process_leases import Enode, Snode
from ortoo.namesrv.decisions.topics import Topic


@dataclass(frozen=True, slots=True)
class Contents:
    """The topics and groups of a watch at one version."""

    version: int
    topics: tuple[Topic, ...]
    """Sorted by name. With a scope of lite topics, those without a parent."""
    groups: tuple[Group, ...]
    """Sorted by name."""
    lite_topics: tuple[Topic, ...] = ()
    """With a scope of lite topics, the lite topics in it."""
    lite_checksum: int = 0
    """The checksum of `lite_topics`."""
    has_all_topics: bool = True
    """Whether `topics` has all topics, as watchers without a scope need."""


@dataclass(frozen=True, slots=True)
class RouteChange:
    """A snapshot of the directory, or changes of it; `version` is the directory's version after the change."""

    version: int
    snapshot: bool = False
    topics: tuple[Topic, ...] = ()
    deleted_topics: tuple[str, ...] = ()
    groups: tuple[Group, ...] = ()
    deleted_groups: tuple[str, ...] = ()
    enodes: tuple[Enode, ...] = ()
    snodes: tuple[Snode, ...] = ()
    deletions: tuple[TopicDeletion, ...] = ()
    """New deletions, and deletions that became due."""
    directory_id: str = ""
    handle_keys: HandleKeys | None = None
    """All keys, only for snodes; None = unchanged."""
    group_deletions: tuple[GroupDeletion, ...] = ()
    """New deletions, and deletions that became due."""
    resumed_to: Contents | None = None
    """Set if the change continues an earlier watch: the contents after it. All live processes are listed then."""

    @property
    def resumed(self) -> bool:
        """Whether the change continues an earlier watch of the same directory."""
        return self.resumed_to is not None

    @property
    def has_only_processes(self) -> bool:
        """Whether it has registrations and nothing else; the directory's version is then that before the change."""
        others = (self.topics, self.deleted_topics, self.groups, self.deleted_groups, self.deletions)
        more = (self.group_deletions, self.handle_keys, self.snapshot, self.resumed)
        return bool(self.enodes or self.snodes) and not any((*others, *more))

    def without_processes(self) -> "RouteChange":
        """The change for an enode, which follows no other processes."""
        return replace(self, enodes=(), snodes=())

    @property
    def deleted_topic_ids(self) -> list[int]:
        """The ids of deleted topics that can still be restored."""
        return [one.topic_id for one in self.deletions if not one.is_due]

    @property
    def due_topic_ids(self) -> list[int]:
        """The ids of deleted topics whose messages enodes must delete."""
        return [one.topic_id for one in self.deletions if one.is_due]

    @property
    def due_groups(self) -> list[GroupDeletion]:
        """The deleted groups whose state enodes must delete."""
        return [one for one in self.group_deletions if one.is_due]


def merge_changes(changes: Sequence[RouteChange]) -> RouteChange:
    """One change with the effect of several consecutive ones, none of them a snapshot."""
    if len(changes) == 1:
        return changes[0]
    topics: dict[str, Topic | None] = {}
    groups: dict[str, Group | None] = {}
    enodes: dict[str, Enode] = {}
    snodes: dict[str, Snode] = {}
    deletions: dict[int, TopicDeletion] = {}
    group_deletions: dict[str, GroupDeletion] = {}
    handle_keys: HandleKeys | None = None
    for change in changes:
        topics.update(dict.fromkeys(change.deleted_topics))
        topics.update((one.name, one) for one in change.topics)
        groups.update(dict.fromkeys(change.deleted_groups))
        groups.update((one.name, one) for one in change.groups)
        enodes.update((one.name, one) for one in change.enodes)
        snodes.update((one.name, one) for one in change.snodes)
        for topic in change.topics:  # restored
            deletions.pop(topic.topic_id, None)
        deletions.update((one.topic_id, one) for one in change.deletions)
        group_deletions.update((one.name, one) for one in change.group_deletions)
        handle_keys = change.handle_keys or handle_keys
    return RouteChange(
        changes[-1].version,
        topics=tuple(one for one in topics.values() if one is not None),
        deleted_topics=tuple(name for name, one in topics.items() if one is None),
        groups=tuple(one for one in groups.values() if one is not None),
        deleted_groups=tuple(name for name, one in groups.items() if one is None),
        enodes=tuple(enodes.values()),
        snodes=tuple(snodes.values()),
        deletions=tuple(deletions.values()),
        directory_id=changes[-1].directory_id,
        handle_keys=handle_keys,
        group_deletions=tuple(group_deletions.values()),
    )
