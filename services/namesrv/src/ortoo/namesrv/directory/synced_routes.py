"""The routes as a copy of the database, which other name servers change too."""

from collections.abc import Callable, Sequence

from ortoo.common.groups.handle_seal import HandleKey, HandleKeys
from ortoo.namesrv.decisions.deletions import GroupDeletion, StoredChanges
from ortoo.namesrv.decisions.routes.route_change import RouteChange
from ortoo.namesrv.decisions.routes.route_changes import Routes, StoredDirectory
from ortoo.namesrv.directory.watches import RouteWatchers


class SyncedRoutes:
    """Applies what was read from the database to the routes, and tells the watchers."""

    def __init__(
        self,
        routes: Routes,
        watches: RouteWatchers,
        distributed_keys: Callable[[tuple[HandleKey, ...]], HandleKeys],
    ) -> None:
        """`distributed_keys` makes the keys for snodes from the stored ones."""
        self.version = routes.version
        """Every stored change up to this version is in the routes."""
        self._routes = routes
        self._watches = watches
        self._distributed_keys = distributed_keys

    def apply_changes(self, stored: StoredChanges) -> bool:
        """Apply changed rows; returns whether they were enough. Otherwise nothing has changed; read all rows."""
        if stored.version <= self.version:
            return True  # an own change was stored in between
        change = change_of(self._routes, stored, self._distributed_keys(stored.handle_keys))
        if change is None:
            return False
        self._forget_deleted_groups(stored.group_deletions)
        self.version = stored.version
        self._watches.publish(change)
        return True

    def apply_all(self, stored: StoredDirectory) -> None:
        """Apply the whole contents of the database."""
        if stored.version <= self.version:
            return  # an own change was stored in between
        change = self._routes.diff(stored, self._distributed_keys(stored.handle_keys))
        self._forget_deleted_groups(stored.group_deletions)
        self.version = stored.version
        told = {topic.topic_id for topic in stored.topics} | {one.topic_id for one in stored.deletions}
        is_older = any(topic.topic_id not in told for topic in self._routes.topics.values())
        if change is not None:
            self._watches.publish(change)
        if is_older:  # the missing topics were not deleted: after a snapshot enodes offer them
            self._watches.resend_snapshots()

    def _forget_deleted_groups(self, reported: Sequence[GroupDeletion]) -> None:
        """Forget those that another name server has restored, or that are no longer reported."""
        for name in self._routes.deleted_groups.keys() - {one.name for one in reported}:
            del self._routes.deleted_groups[name]


def change_of(routes: Routes, stored: StoredChanges, handle_keys: HandleKeys | None) -> RouteChange | None:
    """The change after which the routes equal the database; None if the changed rows do not explain the difference.

    Then all rows must be read, for example because the database was restored. The cost depends on the number of changes
    and of deletions, not on the number of topics and groups.
    """
    topics = tuple(one for one in stored.topics if routes.topics.get(one.name) != one)
    groups = tuple(one for one in stored.groups if routes.groups.get(one.name) != one)
    deletions = tuple(one for one in stored.deletions if routes.deleted.get(one.topic_id) != one)
    group_deletions = tuple(one for one in stored.group_deletions if routes.deleted_groups.get(one.name) != one)
    kept_topics, kept_groups = {one.name for one in stored.topics}, {one.name for one in stored.groups}
    gone_topics = {
        one.topic.name
        for one in deletions
        if one.topic.name not in kept_topics
        and (known := routes.topics.get(one.topic.name)) is not None
        and known.topic_id == one.topic_id
    }
    gone_groups = {one.name for one in group_deletions if one.name in routes.groups} - kept_groups
    change = RouteChange(
        stored.version,
        topics=topics,
        deleted_topics=tuple(sorted(gone_topics)),
        groups=groups,
        deleted_groups=tuple(sorted(gone_groups)),
        deletions=deletions,
        handle_keys=handle_keys if handle_keys != routes.handle_keys else None,
        group_deletions=group_deletions,
    )
    return change if routes.sums_after(change) == stored.sums else None
