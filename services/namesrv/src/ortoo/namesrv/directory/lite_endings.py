"""The end of unused lite topics, many in one change: the stored change and the change for watchers."""

import dataclasses
from collections.abc import Mapping
from typing import NamedTuple

from ortoo.common.directory.topic import Permission
from ortoo.namesrv.catalog.transaction import CatalogTransaction
from ortoo.namesrv.decisions import deletions
from ortoo.namesrv.decisions.routes.route_change import RouteChange
from ortoo.namesrv.decisions.topics import Topic

WRITABLE = (Permission.READ_WRITE, Permission.WRITE_ONLY)
"""A lite topic with another permission is closed already; one that an operator has closed for readers stays so."""


class EndedLiteTopics(NamedTuple):
    """The lite topics that are closed now, and the names of the deleted ones."""

    closed: list[Topic]
    deleted: list[str]


def end_lite_topics(
    close: Mapping[str, int], delete: Mapping[str, int], now_ms: int, grace_ms: int, stored: CatalogTransaction
) -> tuple[EndedLiteTopics, RouteChange | None]:
    """Close lite topics and delete closed ones, given with their versions. Others and changed ones stay as they are.

    So do those whose parent sets no lifetime: the snode may not know yet that it was removed. A deleted one can be
    restored for `grace_ms`, unless very many topics can be restored already.
    """
    close = {name: version for name, version in close.items() if name not in delete}
    found = {topic.name: topic for topic in stored.topics_by_name([*close, *delete])}
    parents = stored.topics_by_name({one.parent for one in found.values() if one.parent})
    expiring = {one.name for one in parents if one.lite_ttl_ms}
    unneeded = [one for one in found.values() if one.parent in expiring and one.version == delete.get(one.name)]
    ended = [one for one in unneeded if one.permission not in WRITABLE]
    unused = [one for one in found.values() if one.parent in expiring and one.version == close.get(one.name)]
    closing = [one for one in unused if one.permission in WRITABLE]
    changed = [dataclasses.replace(one, permission=Permission.READ_ONLY, version=stored.version) for one in closing]
    stored.set_permission(changed, Permission.READ_ONLY)
    if ended and stored.restorable_topic_count() >= deletions.RESTORABLE_LITE_MAX:
        grace_ms = 0
    deleted_at_ms = stored.now_ms(now_ms)
    deleted = [deletions.delete(one, now_ms=deleted_at_ms, grace_ms=grace_ms) for one in ended]
    stored.delete_topics(deleted)
    closed = [one for one in unused if one.permission not in WRITABLE] + changed
    answer = EndedLiteTopics(closed, [one.name for one in ended])
    if not changed and not deleted:
        return answer, None
    change = RouteChange(
        stored.version, topics=tuple(changed), deleted_topics=tuple(answer.deleted), deletions=tuple(deleted)
    )
    return answer, change


def open_closed(before: Topic, parent: Topic, stored: CatalogTransaction) -> list[Topic]:
    """Open the closed lite topics of a parent whose lifetime is removed; returns them.

    No send would open them: without a lifetime, they count as closed by an operator.
    """
    if not before.lite_ttl_ms or parent.lite_ttl_ms:
        return []
    closed = [one for one in stored.lite_topics(parent.name) if one.permission is Permission.READ_ONLY]
    opened = [dataclasses.replace(one, permission=Permission.READ_WRITE, version=stored.version) for one in closed]
    stored.set_permission(opened, Permission.READ_WRITE)
    return opened
