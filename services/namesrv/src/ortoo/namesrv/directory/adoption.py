"""Adoption of offered topics: the stored change and the change for watchers."""

from collections.abc import Sequence

from ortoo.namesrv.catalog.transaction import Transaction
from ortoo.namesrv.decisions import orphaned_topics, topics
from ortoo.namesrv.decisions.orphaned_topics import OfferedTopic, Offers
from ortoo.namesrv.decisions.route_changes import RouteChange
from ortoo.namesrv.decisions.topics import Topic

Adoption = tuple[list[Topic], list[OfferedTopic]]
"""The adopted topics, and the offered topics that could not be adopted."""


def adopt(
    said: Offers, names: Sequence[str], everything: bool, now_ms: int, stored: Transaction
) -> tuple[Adoption, RouteChange | None]:
    """Adopt the named offered topics, or `everything` that can be. Errors: `orphaned_topics.wanted`; Overloaded."""
    known = stored.contents()
    existing = {topic.name: topic for topic in known.topics}
    offered = said.all(existing, {one.topic_id: one for one in known.deletions})
    chosen = [one for one in offered if not one.obstacle] if everything else orphaned_topics.wanted(names, offered)
    topics.check_count(len(existing) + sum(one.name not in existing for one in chosen))
    taken = []
    for one in chosen:
        before = existing.get(one.name)
        taken.append(orphaned_topics.adopted(one, before, version=stored.version, now_ms=now_ms))
        stored.put_topic(taken[-1], before)
    refused = [one for one in offered if one.obstacle] if everything else []
    return (taken, refused), RouteChange(stored.version, topics=tuple(taken)) if taken else None
