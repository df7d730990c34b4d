"""Forgetting an enode that does not come back: the stored change and the change for watchers."""

import dataclasses
from collections.abc import Mapping

from ortoo.common.errors import Conflict
from ortoo.namesrv.catalog.transaction import CatalogTransaction
from ortoo.namesrv.decisions import topics
from ortoo.namesrv.decisions.routes.route_change import RouteChange
from ortoo.namesrv.decisions.topics import ForgottenEnode


def forget_enode(
    enode: str, lose: bool, replicas: str, enodes: Mapping[str, bool], stored: CatalogTransaction
) -> tuple[ForgottenEnode, RouteChange | None]:
    """Remove an enode from all topics. `enodes` has the liveness of each registered enode.

    Errors: Conflict for a live enode, and as `topics.check_forgettable` without `lose`; as `topics.choose_enodes`.
    """
    if enodes.get(enode):
        raise Conflict(f"enode {enode!r} has a lease; stop its processes, then retry", field="enode")
    known = stored.load_all()
    placed = [topic for topic in known.topics if topic.placement(enode) is not None]
    deleted = [one for one in known.deletions if not one.is_due and one.topic.placement(enode) is not None]
    if not lose:
        topics.check_forgettable(enode, placed, [one.topic for one in deleted], replicas)
    if not placed and not deleted:
        return ForgottenEnode(), None
    changed, moved = [], []
    for topic in placed:
        others: list[str] = []
        if len(topic.placements) == 1:
            others = topics.choose_enodes(topic.name, (), enodes)
            moved.append(topic.name)
        changed.append(topics.without_enode(topic, enode, others, version=stored.version))
    for topic, before in zip(changed, placed, strict=True):
        stored.put_topic(topic, before)
    lost = [one for one in deleted if len(one.topic.placements) == 1]
    stored.mark_topics_due([one.topic_id for one in lost], ())
    deletions = [
        dataclasses.replace(one, is_due=True)
        if one in lost
        else dataclasses.replace(one, topic=topics.without_enode(one.topic, enode, (), version=one.topic.version))
        for one in deleted
    ]
    for one in deletions:
        stored.put_deleted_placements(one.topic)
    names = [topic.name for topic in placed]
    forgotten = ForgottenEnode(
        tuple(name for name in names if name not in moved),
        tuple(moved),
        tuple(one.topic.name for one in lost),
        stored.version,
    )
    return forgotten, RouteChange(stored.version, topics=tuple(changed), deletions=tuple(deletions))
