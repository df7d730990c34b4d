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
    wanted: Mapping[str, frozenset[str]] | None = None
    """The topics of each member; None = not reported, then all members have all topics."""
    rooms: Mapping[str, str] | None = None
    strategy: AllocationStrategy = AllocationStrategy.AVERAGELY


def allocated(
    view: GroupView,
    client_id: str,
    topic: str,
    queues: Sequence[Queue],
    *,
    configured_queues: Collection[Queue] = (),
    rooms: Collection[str] = (),
) -> list[Queue]:
    """The queues of a topic for `client_id`. Errors: Invalid if zones matter and one is missing."""
    members = [it for it in view.client_ids if view.wanted is None or topic in view.wanted.get(it, ())]
    if not members or not queues:
        return []
    configured = {client_id: [queue for queue in configured_queues if queue.topic == topic]}
    return allocate(
        queues,
        members,
        client_id,
        view.strategy,
        configured=configured,
        rooms=rooms,
        member_rooms=view.rooms,
    )


def change_of(
    owned: Mapping[Queue, float],
    allocated_by_topic: Mapping[str, Iterable[Queue]],
    topics: Collection[str],
    now_s: float,
) -> tuple[list[Queue], list[Queue]]:
    """The queues to drop and to take. `owned` maps each queue to the time of its last pull.

    Topics whose allocation is unknown now are unchanged, and topics without a subscription are dropped. A queue without
    a pull for PULL_IDLE_S is dropped too, and taken again at the next check.
    """
    drop = []
    for queue, pulled_at_s in owned.items():
        known = allocated_by_topic.get(queue.topic)
        is_gone = queue.topic not in topics or (known is not None and queue not in set(known))
        if is_gone or now_s - pulled_at_s > PULL_IDLE_S:
            drop.append(queue)
    take = [queue for queues in allocated_by_topic.values() for queue in queues if queue not in owned]
    return sorted(drop), sorted(take)
