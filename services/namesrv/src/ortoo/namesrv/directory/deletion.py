"""Deletion and restoration of topics and groups: the stored change and the change for watchers."""

from collections.abc import Collection
from itertools import islice

from ortoo.common.directory.group import Group
from ortoo.common.errors import Conflict
from ortoo.namesrv.catalog.transaction import CatalogTransaction
from ortoo.namesrv.decisions import deletions, groups, topics
from ortoo.namesrv.decisions.deletions import GroupDeletion, TopicDeletion
from ortoo.namesrv.decisions.orphaned_topics import OrphanedTopics, adopted_topic
from ortoo.namesrv.decisions.routes.route_change import RouteChange
from ortoo.namesrv.decisions.topics import Topic


def delete_topic(
    name: str, version: int, now_ms: int, grace_ms: int, stored: CatalogTransaction
) -> tuple[TopicDeletion, RouteChange]:
    """Delete a topic, which can be restored for `grace_ms`. `version` is the expected version of the topic.

    Errors: Invalid, NotFound, Conflict if the topic has another version.
    """
    topic = topics.require_topic(name, stored.topic(name))
    if version not in (0, topic.version):
        what = f"topic {name} has version {topic.version}, not {version}: it was changed meanwhile; read it again"
        raise Conflict(what, field="version")
    deletion = deletions.delete(topic, now_ms=stored.now_ms(now_ms), grace_ms=grace_ms)
    stored.delete_topics([deletion])
    return deletion, RouteChange(stored.version, deleted_topics=(name,), deletions=(deletion,))


def undelete_topic(name: str, topic_id: int, stored: CatalogTransaction) -> tuple[Topic, RouteChange]:
    """Restore a deleted topic. Errors: as `deletions.undelete`."""
    deleted = stored.deleted_topics(name=name)
    topic = deletions.undelete(name, topic_id, stored.topic(name), deleted, version=stored.version)
    stored.undelete_topic(topic)
    return topic, RouteChange(stored.version, topics=(topic,))


def delete_group(
    name: str, now_ms: int, grace_ms: int, stored: CatalogTransaction
) -> tuple[GroupDeletion, RouteChange]:
    """Delete a group; it can be restored for `grace_ms`. Errors: Invalid, NotFound."""
    group = groups.require_group(name, stored.group(name))
    now_ms = stored.now_ms(now_ms)
    deletion = deletions.delete_group(group, now_ms=now_ms, grace_ms=grace_ms, version=stored.version)
    stored.delete_group(deletion)
    return deletion, RouteChange(stored.version, deleted_groups=(name,), group_deletions=(deletion,))


def undelete_group(name: str, stored: CatalogTransaction) -> tuple[Group, RouteChange]:
    """Restore a deleted group. Errors: as `deletions.undelete_group`."""
    existing, deletion = stored.group(name), next(iter(stored.deleted_groups(name=name)), None)
    group = deletions.undelete_group(name, existing, deletion, version=stored.version)
    stored.remove_deleted_groups([name])
    stored.put_group(group, existing)
    return group, RouteChange(stored.version, groups=(group,))


def mark_due_topics(
    ended: Collection[TopicDeletion],
    forgotten: Collection[int],
    confirmed: Collection[int],
    now_ms: int,
    stored: CatalogTransaction,
) -> tuple[set[int], RouteChange | None]:
    """Tell enodes to delete those of the topics `ended` whose grace period has expired, and forget other deletions.

    A forgotten one that is due in the database and is not `confirmed` is kept: enodes may not have carried it out.
    Returns the ids of deletions that are not stored any more. Some of `ended` may be among them, if the database was
    restored. The cost depends on these topics, not on all deleted ones.
    """
    known = {one.topic_id for one in ended}
    found = stored.deleted_topics_by_id(known)
    now_ms = stored.now_ms(now_ms)
    due = tuple(deletions.due_topics(found, now_ms))
    dropped = stored.deleted_topics_by_id(forgotten)
    kept = [one for one in dropped if one.is_due and one.topic_id not in confirmed]
    stored.mark_topics_due([one.topic_id for one in due], forgotten)
    stored.unconfirmed.add(kept, now_ms)
    # An earlier name server may have adopted a topic whose deletion was final.
    stored.unconfirmed.remove([one.topic_id for one in dropped if not one.is_due])
    gone = {*forgotten, *known.difference(one.topic_id for one in found)}
    return gone, RouteChange(stored.version, deletions=due) if due or forgotten else None


def report_again(
    offers: OrphanedTopics, topic_ids: Collection[int], now_ms: int, stored: CatalogTransaction
) -> tuple[bool, RouteChange | None]:
    """Report due deletions again that were forgotten before all enodes had carried them out, for topics in `offers`.

    `topic_ids` are the ids of the topics to look for. A topic is not deleted because the directory lacks it. Its
    deletion was reported as due, which is final. Returns whether there are no more than `CHANGED_AT_ONCE_MAX`, the
    maximum of one call.
    """
    wanted = stored.unconfirmed.find(topic_ids)
    wanted -= {one.topic_id for one in stored.topics_by_id(wanted)}
    wanted -= {one.topic_id for one in stored.deleted_topics_by_id(wanted)}
    if not wanted:
        return True, None
    told = set(islice(wanted, deletions.CHANGED_AT_ONCE_MAX))
    now_ms = stored.now_ms(now_ms)
    again = tuple(
        TopicDeletion(
            adopted_topic(one, None, version=stored.version, now_ms=now_ms),
            deleted_at_ms=now_ms,
            due_at_ms=now_ms,  # not the former time, so that it is not forgotten first
            is_due=True,
        )
        for one in offers.list_orphaned({}, offers.topic_ids() - told)
    )
    stored.report_deletions_again(again)
    return len(told) == len(wanted), RouteChange(stored.version, deletions=again)


def mark_due_groups(now_ms: int, stored: CatalogTransaction) -> tuple[set[str], RouteChange | None]:
    """Tell enodes to delete groups whose grace period has expired; returns the names in forgotten deletions.

    A deletion is also forgotten if its group exists again.
    """
    deleted, now_ms = stored.deleted_groups(), stored.now_ms(now_ms)
    existing = stored.existing_groups([one.name for one in deleted])
    due, again = deletions.due_groups(deleted, existing, now_ms, version=stored.version)
    forgotten = deletions.expired_deletions({one.name: one for one in deleted}, now_ms) | again
    stored.mark_groups_due([one.name for one in due])
    stored.remove_deleted_groups(forgotten)
    return forgotten, RouteChange(stored.version, group_deletions=tuple(due)) if due or forgotten else None
