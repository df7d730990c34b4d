"""The changes that other name servers stored: the rows to read, and the change for the own watchers. Pure."""

from dataclasses import dataclass

from ortoo.common.groups.handle_seal import HandleKey, HandleKeys
from ortoo.namesrv.decisions.deletions import GroupDeletion, TopicDeletion
from ortoo.namesrv.decisions.groups import Group
from ortoo.namesrv.decisions.route_changes import RouteChange, Routes
from ortoo.namesrv.decisions.row_sums import RowSums
from ortoo.namesrv.decisions.topics import Topic


@dataclass(frozen=True, slots=True)
class StoredChanges:
    """The rows of the database that were changed after a version, and all deletions."""

    version: int
    topics: tuple[Topic, ...]
    groups: tuple[Group, ...]
    deletions: tuple[TopicDeletion, ...]
    group_deletions: tuple[GroupDeletion, ...]
    handle_keys: tuple[HandleKey, ...]
    sums: RowSums
    """Of all stored topics and groups."""


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
