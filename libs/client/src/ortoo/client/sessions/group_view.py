"""A group as reported to a member, and the member's queues that follow from it; without I/O."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from ortoo.client.core.queues import Queue
from ortoo.common.groups.allocation import AllocationStrategy, allocate

PULL_IDLE_S = 120.0
"""A queue without a pull for this time is restarted."""


@dataclass(frozen=True, slots=True)
class GroupView:
    """The members of a group, as reported by a server."""

    client_ids: tuple[str, ...] = ()
    member_topics: Mapping[str, frozenset[str]] | None = None
    """The topics of each member; None = not reported, then all members have all topics."""
    zones: Mapping[str, str] | None = None
    strategy: AllocationStrategy = AllocationStrategy.AVERAGELY


def allocate_queues(
    view: GroupView,
    client_id: str,
    topic: str,
    queues: Sequence[Queue],
    *,
    configured_queues: Collection[Queue] = (),
    zones: Collection[str] = (),
) -> list[Queue]:
    """The queues of a topic that the group's strategy allocates to `client_id`; `queues` are all queues of the topic.

    `configured_queues` are the queues in the member's settings. Errors: Invalid if the strategy needs zones and a zone
    is missing.
    """
    members = [it for it in view.client_ids if view.member_topics is None or topic in view.member_topics.get(it, ())]
    if not members or not queues:
        return []
    configured = {client_id: [queue for queue in configured_queues if queue.topic == topic]}
    return allocate(
        queues,
        members,
        client_id,
        view.strategy,
        configured=configured,
        zones=zones,
        member_zones=view.zones,
    )


def assignment_change(
    owned: Mapping[Queue, float],
    allocated_by_topic: Mapping[str, Iterable[Queue]],
    topics: Collection[str],
    now_s: float,
) -> tuple[list[Queue], list[Queue]]:
    """The queues to drop and the queues to take. `owned` maps each queue to the time of its last pull.

    Topics whose allocation is unknown now are unchanged, and topics without a subscription are dropped. A queue that
    was not pulled for PULL_IDLE_S is dropped too, and taken again at the next check.
    """
    drop = []
    for queue, pulled_at_s in owned.items():
        allocated_queues = allocated_by_topic.get(queue.topic)
        is_revoked = queue.topic not in topics or (allocated_queues is not None and queue not in set(allocated_queues))
        if is_revoked or now_s - pulled_at_s > PULL_IDLE_S:
            drop.append(queue)
    take = [queue for queues in allocated_by_topic.values() for queue in queues if queue not in owned]
    return sorted(drop), sorted(take)
