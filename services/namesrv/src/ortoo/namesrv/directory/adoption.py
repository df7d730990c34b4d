"""Adoption of topics that enodes hold and the directory lacks: the stored change and the change for watchers."""

from collections.abc import Sequence

from ortoo.namesrv.catalog.transaction import CatalogTransaction
from ortoo.namesrv.decisions import orphaned_topics, topics
from ortoo.namesrv.decisions.orphaned_topics import OrphanedTopic, OrphanedTopics
from ortoo.namesrv.decisions.routes.route_change import RouteChange
from ortoo.namesrv.decisions.topics import Topic

Adoption = tuple[list[Topic], list[OrphanedTopic]]
"""The adopted topics, and the topics that could not be adopted."""


def adopt_topics(
    orphaned: OrphanedTopics, names: Sequence[str], all_possible: bool, now_ms: int, stored: CatalogTransaction
) -> tuple[Adoption, RouteChange | None]:
    """Adopt the orphaned topics `names`, or with `all_possible` every topic without a conflict.

    Errors: as `select_named`; Overloaded.
    """
    known = stored.load_all()
    existing = {topic.name: topic for topic in known.topics}
    final = stored.unconfirmed.find(orphaned.topic_ids())  # enodes delete them next
    final -= {topic.topic_id for topic in known.topics}
    offered = orphaned.list_orphaned(existing, final | {one.topic_id for one in known.deletions})
    chosen = (
        [one for one in offered if not one.conflict] if all_possible else orphaned_topics.select_named(names, offered)
    )
    taken = [
        orphaned_topics.adopted_topic(one, existing.get(one.name), version=stored.version, now_ms=now_ms)
        for one in chosen
    ]
    plain = {one.name for one in (*known.topics, *taken) if not one.parent}
    topics.check_count(len(plain))
    for one in taken:
        stored.put_topic(one, existing.get(one.name))
    refused = [one for one in offered if one.conflict] if all_possible else []
    return (taken, refused), RouteChange(stored.version, topics=tuple(taken)) if taken else None
