"""The assignment of queues to group members: a pure function, the same at every snode and at the clients."""

from collections.abc import Mapping, Sequence

from ortoo.common.errors import Invalid
from ortoo.common.groups.allocation import AllocationStrategy, share
from ortoo.snode.cluster.routes import Queue
from ortoo.snode.membership.group_members import Member, strategy_of


def assign(members: Mapping[str, Member], queues: Mapping[str, Sequence[Queue]]) -> dict[str, list[Queue]]:
    """Assign all topics: `members` by client id, `queues` maps each topic to its readable queues.

    Returns each active member's queues, sorted. Every queue of a subscribed topic is in exactly one list, unless the
    strategy decides otherwise. A broadcast member also has all queues of its topics.
    """
    strategy = strategy_of(members)
    wanting: dict[str, list[str]] = {}
    given: dict[str, list[Queue]] = {client_id: [] for client_id, member in members.items() if member.active}
    for client_id, queues_given in given.items():
        for topic in members[client_id].topics:
            if members[client_id].shares:
                wanting.setdefault(topic, []).append(client_id)
            else:
                queues_given += queues.get(topic, ())
    for topic, client_ids in wanting.items():
        for client_id, its in _shares(
            strategy, queues.get(topic, ()), {one: members[one] for one in client_ids}
        ).items():
            given[client_id] += its
    for queues_given in given.values():
        queues_given.sort()
    return given


def _shares(
    strategy: AllocationStrategy, queues: Sequence[Queue], members: Mapping[str, Member]
) -> Mapping[str, Sequence[Queue]]:
    """Assign queues by the strategy. If the strategy fails, divide them evenly, so that no queue stays unassigned."""
    if not queues:
        return {}
    try:
        return share(
            queues,
            members,
            strategy,
            configured={one: [q for q in member.configured if q in queues] for one, member in members.items()},
            rooms={room for member in members.values() for room in member.rooms},
            member_rooms={one: member.room for one, member in members.items()},
        )
    except Invalid:
        return share(queues, members)
