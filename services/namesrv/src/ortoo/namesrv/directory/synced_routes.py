"""The routes as a copy of the database, which other name servers change too."""

from collections.abc import Callable, Sequence

from ortoo.common.groups.handle_seal import HandleKey, HandleKeys
from ortoo.namesrv.decisions import stored_changes
from ortoo.namesrv.decisions.deletions import GroupDeletion
from ortoo.namesrv.decisions.route_changes import Routes, StoredDirectory
from ortoo.namesrv.decisions.stored_changes import StoredChanges
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
        change = stored_changes.change_of(self._routes, stored, self._distributed_keys(stored.handle_keys))
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
