"""The assignment of a topic's queues to the members of a group: pure functions.

Every group member, and every server that assigns for group members, computes the same result from the same inputs.
Inputs may come in any order: queues are sorted by topic, enode and id, group members by id.
"""

import hashlib
from bisect import bisect_left
from collections.abc import Callable, Collection, Mapping, Sequence
from enum import IntEnum
from typing import Any, Protocol, TypeVar

from ortoo.common.errors import Invalid

VIRTUAL_NODES = 10
"""The number of places of each group member on the ring of the consistent hash."""


class AnyQueue(Protocol):
    """The properties of a queue that the assignment to group members requires."""

    @property
    def topic(self) -> str:
        """The topic's name."""

    @property
    def enode(self) -> str:
        """The enode's name; `zone@name` where availability zones count."""

    @property
    def queue_id(self) -> int:
        """The queue's number on its enode."""


Q = TypeVar("Q", bound=AnyQueue)
Assignments = dict[str, list[Q]]


class AllocationStrategy(IntEnum):
    """The strategies that assign a topic's queues to the members of a group; the numbers are those of the wire."""

    AVERAGELY = 1
    """Equal blocks in order. If the division leaves a rest, the first group members get one queue more."""
    CIRCLE = 2
    """The queues are dealt out one by one."""
    CONSISTENT_HASH = 3
    """A new group member takes over queues; no other queue moves."""
    CONFIG = 4
    """Each group member gets the queues that it names."""
    MACHINE_ROOM = 5
    """Only queues on enodes named `zone@name` in one of the listed availability zones, in equal parts."""
    ROOM_NEARBY = 6
    """A zone's queues go to the group members in the zone. Queues of a zone without group members go to all group
    members."""


def md5_position(text: str) -> int:
    """The position of a name on the ring: the first four bytes of its MD5, big-endian."""
    digest = hashlib.md5(text.encode(), usedforsecurity=False).digest()
    return int.from_bytes(digest[:4], "big")


def allocate(
    queues: Collection[Q],
    members: Collection[str],
    member: str,
    strategy: AllocationStrategy = AllocationStrategy.AVERAGELY,
    **more: Any,
) -> list[Q]:
    """The queues that `assign_queues` assigns to `member`; none if `member` is not in `members`.

    The other arguments are those of `assign_queues`. Errors: those of `assign_queues`; Invalid if `member` is empty.
    """
    if not member:
        raise Invalid("the member's id is empty; give the client id with which the member registered", field="member")
    return assign_queues(queues, members, strategy, **more).get(member, [])


def assign_queues(
    queues: Collection[Q],
    members: Collection[str],
    strategy: AllocationStrategy = AllocationStrategy.AVERAGELY,
    *,
    configured: Mapping[str, Sequence[Q]] | None = None,
    zones: Collection[str] = (),
    member_zones: Mapping[str, str] | None = None,
    inner: AllocationStrategy = AllocationStrategy.AVERAGELY,
    virtual_nodes: int = VIRTUAL_NODES,
    ring_position: Callable[[str], int] = md5_position,
) -> "Assignments[Q]":
    """The queues of each group member, sorted; no queue has two owners.

    * `configured` (CONFIG) maps each group member to its queues. If several group members have the same queue, the
      first of them by id gets this queue.
    * `zones` (MACHINE_ROOM) lists the availability zones whose queues are assigned.
    * `member_zones` (ROOM_NEARBY) maps each group member to its zone; `inner` is the strategy within a zone.
    * `virtual_nodes` and `ring_position` (CONSISTENT_HASH) define the ring.

    Errors: Invalid for no group members, no queues, or a missing zone.
    """
    if not members:
        raise Invalid("there is no group member to assign queues to", field="members")
    if not queues:
        raise Invalid("there is no queue to assign", field="queues")
    ordered_queues = sorted(set(queues), key=_sort_key)
    ordered_members = sorted(set(members))
    if strategy is AllocationStrategy.CIRCLE:
        return circle(ordered_queues, ordered_members)
    if strategy is AllocationStrategy.CONSISTENT_HASH:
        return consistent_hash(ordered_queues, ordered_members, virtual_nodes, ring_position)
    if strategy is AllocationStrategy.CONFIG:
        return _config(ordered_members, configured or {})
    if strategy is AllocationStrategy.MACHINE_ROOM:
        return _machine_zone(ordered_queues, ordered_members, frozenset(zones))
    if strategy is AllocationStrategy.ROOM_NEARBY:
        if inner in (AllocationStrategy.ROOM_NEARBY, AllocationStrategy.CONFIG, AllocationStrategy.MACHINE_ROOM):
            raise Invalid(
                f"{inner.name} cannot assign within a zone; use AVERAGELY, CIRCLE or CONSISTENT_HASH", field="inner"
            )

        def within(its_queues: Sequence[Q], its_members: Sequence[str]) -> "Assignments[Q]":
            return assign_queues(
                its_queues, its_members, inner, virtual_nodes=virtual_nodes, ring_position=ring_position
            )

        return _zone_nearby(ordered_queues, ordered_members, member_zones or {}, within)
    return averagely(ordered_queues, ordered_members)


def averagely(queues: Sequence[Q], members: Sequence[str]) -> "Assignments[Q]":
    """Contiguous blocks of sorted queues for sorted group members.

    If the queues cannot be divided evenly, the first group members get one queue more.
    """
    size, more = divmod(len(queues), len(members))
    assignments: Assignments[Q] = {}
    at = 0
    for index, member in enumerate(members):
        end = at + size + (index < more)
        assignments[member] = list(queues[at:end])
        at = end
    return assignments


def circle(queues: Sequence[Q], members: Sequence[str]) -> "Assignments[Q]":
    """Assign sorted queues to sorted group members in turn, one by one."""
    return {member: list(queues[index :: len(members)]) for index, member in enumerate(members)}


def consistent_hash(
    queues: Sequence[Q], members: Sequence[str], virtual_nodes: int, position: Callable[[str], int]
) -> "Assignments[Q]":
    """Each queue goes to the first virtual node at or after its position on the ring.

    Without virtual nodes, no queue is assigned.
    Errors: Invalid for a negative number of virtual nodes.
    """
    if virtual_nodes < 0:
        raise Invalid(f"{virtual_nodes} virtual nodes; expected 0 or more", field="virtual_nodes")
    ring = {position(f"{member}-{index}"): member for member in members for index in range(virtual_nodes)}
    assignments: Assignments[Q] = {member: [] for member in members}
    places = sorted(ring)
    for queue in queues if places else ():
        at = bisect_left(places, position(queue_text(queue)))
        assignments[ring[places[at % len(places)]]].append(queue)
    return assignments


def queue_text(queue: AnyQueue) -> str:
    """A queue's name on the ring, in the form of RocketMQ's clients, so that all clients compute the same position."""
    return f"MessageQueue [topic={queue.topic}, brokerName={queue.enode}, queueId={queue.queue_id}]"


def zone_of(queue: AnyQueue) -> str:
    """The availability zone of an enode named `zone@name`; empty for any other name."""
    zone, at, _ = queue.enode.partition("@")
    return zone if at else ""


def _config(members: Sequence[str], configured: Mapping[str, Sequence[Q]]) -> "Assignments[Q]":
    assigned: set[tuple[str, str, int]] = set()
    assignments: Assignments[Q] = {}
    for member in members:
        named = sorted(
            {queue for queue in configured.get(member, ()) if _sort_key(queue) not in assigned}, key=_sort_key
        )
        assigned.update(map(_sort_key, named))
        assignments[member] = named
    return assignments


def _machine_zone(queues: Sequence[Q], members: Sequence[str], zones: frozenset[str]) -> "Assignments[Q]":
    in_zones = [queue for queue in queues if zone_of(queue) in zones and zone_of(queue)]
    size = len(in_zones) // len(members)
    rest = in_zones[size * len(members) :]
    return {
        member: in_zones[index * size : (index + 1) * size] + rest[index : index + 1]
        for index, member in enumerate(members)
    }


def _zone_nearby(
    queues: Sequence[Q],
    members: Sequence[str],
    member_zones: Mapping[str, str],
    assign_within: Callable[[Sequence[Q], Sequence[str]], "Assignments[Q]"],
) -> "Assignments[Q]":
    members_in: dict[str, list[str]] = {}
    for member in members:
        zone = member_zones.get(member, "")
        if not zone:
            raise Invalid(f"the zone of the group member {member!r} is missing; connect it with a zone", field="zone")
        members_in.setdefault(zone, []).append(member)
    queues_in: dict[str, list[Q]] = {}
    for queue in queues:
        zone = zone_of(queue)
        if not zone:
            raise Invalid(
                f"the name of the enode {queue.enode!r} contains no zone; name enodes zone@name", field="queues"
            )
        queues_in.setdefault(zone, []).append(queue)
    assignments: Assignments[Q] = {member: [] for member in members}
    for zone, its_queues in queues_in.items():
        for member, given in assign_within(its_queues, members_in.get(zone, members)).items():
            assignments[member] += given
    return {member: sorted(given, key=_sort_key) for member, given in assignments.items()}


def _sort_key(queue: AnyQueue) -> tuple[str, str, int]:
    return queue.topic, queue.enode, queue.queue_id
