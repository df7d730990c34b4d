"""The assignment of queues to group members: a pure function, the same at every snode and at the clients."""

from collections.abc import Mapping, Sequence

from ortoo.common.errors import Invalid
from ortoo.common.groups.allocation import AllocationStrategy, assign_queues
from ortoo.snode.cluster.routes import Queue
from ortoo.snode.membership.group_members import GroupMember, strategy_of


def assign(members: Mapping[str, GroupMember], queues: Mapping[str, Sequence[Queue]]) -> dict[str, list[Queue]]:
    """Assign queues to the members of a group; returns the sorted queues of each active member.

    `members` are by client id, and `queues` has the readable queues of each topic. Each queue goes to exactly one
    member that subscribes to its topic, unless the strategy decides otherwise. A broadcast member gets all queues of
    its topics.
    """
    strategy = strategy_of(members)
    subscribers: dict[str, list[str]] = {}
    assigned: dict[str, list[Queue]] = {client_id: [] for client_id, member in members.items() if member.active}
    for client_id, assigned_queues in assigned.items():
        for topic in members[client_id].topics:
            if members[client_id].is_assigned_queues:
                subscribers.setdefault(topic, []).append(client_id)
            else:
                assigned_queues += queues.get(topic, ())
    for topic, client_ids in subscribers.items():
        for client_id, allocated in _allocate(
            strategy, queues.get(topic, ()), {one: members[one] for one in client_ids}
        ).items():
            assigned[client_id] += allocated
    for assigned_queues in assigned.values():
        assigned_queues.sort()
    return assigned


def _allocate(
    strategy: AllocationStrategy, queues: Sequence[Queue], members: Mapping[str, GroupMember]
) -> Mapping[str, Sequence[Queue]]:
    """Assign queues by the strategy. If the strategy fails, divide them evenly, so that no queue stays unassigned."""
    if not queues:
        return {}
    try:
        return assign_queues(
            queues,
            members,
            strategy,
            configured={one: [q for q in member.configured if q in queues] for one, member in members.items()},
            zones={room for member in members.values() for room in member.rooms},
            member_zones={one: member.room for one, member in members.items()},
        )
    except Invalid:
        return assign_queues(queues, members)
