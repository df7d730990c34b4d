"""How a group looks to one of its members, and what follows for the member's queues: pure."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from ortoo.client.core.place import Queue
from ortoo.common.groups.allocation import AllocationStrategy, allocate

PULL_IDLE_S = 120.0
"""A queue that was not pulled for so long is started anew."""


@dataclass(frozen=True, slots=True)
class GroupView:
    """The members that share out queues, as a server told them."""

    client_ids: tuple[str, ...] = ()
    wanted: Mapping[str, frozenset[str]] | None = None
    """The topics each member wants; None = not told, then all want everything."""
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
    """The queues of a topic that `client_id` takes. Errors: Invalid where rooms count and one is not named."""
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
    """What to drop and what to take, of what is owned (queue -> when it was last pulled) and what was allocated.

    Topics that are wanted but whose allocation is not known now stay as they are; those not wanted any more go; a
    queue that was not pulled for PULL_IDLE_S goes, and comes back with the next look.
    """
    drop = []
    for queue, pulled_at_s in owned.items():
        known = allocated_by_topic.get(queue.topic)
        is_gone = queue.topic not in topics or (known is not None and queue not in set(known))
        if is_gone or now_s - pulled_at_s > PULL_IDLE_S:
            drop.append(queue)
    take = [queue for queues in allocated_by_topic.values() for queue in queues if queue not in owned]
    return sorted(drop), sorted(take)
