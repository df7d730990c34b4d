"""Who of a group gets which queues of a topic: pure functions of their inputs.

Every member, and every server that assigns for members, computes the same answer from the same members and queues, so
they agree without talking. Inputs may come in any order: queues are sorted by topic, enode and id, members by id.
"""

import hashlib
from bisect import bisect_left
from collections.abc import Callable, Collection, Mapping, Sequence
from enum import IntEnum
from typing import Any, Protocol, TypeVar

from ortoo.common.errors import Invalid

VIRTUAL_NODES = 10
"""How many places each member has on the ring of the consistent hash."""


class AnyQueue(Protocol):
    """What must be known of a queue."""

    @property
    def topic(self) -> str:
        """The topic's name."""

    @property
    def enode(self) -> str:
        """The enode's name; `room@name` where rooms count."""

    @property
    def queue_id(self) -> int:
        """The queue's number on its enode."""


Q = TypeVar("Q", bound=AnyQueue)
Shares = dict[str, list[Q]]


class AllocationStrategy(IntEnum):
    """How the members of a group share out the queues of a topic; the numbers are those of the wire."""

    AVERAGELY = 1
    """Equal blocks in order; the first members get one queue more."""
    CIRCLE = 2
    """Dealt out one by one."""
    CONSISTENT_HASH = 3
    """A newcomer takes over queues; no others move."""
    CONFIG = 4
    """Each member takes the queues it names."""
    MACHINE_ROOM = 5
    """Only queues on enodes named `room@name` whose room was listed, in equal parts."""
    ROOM_NEARBY = 6
    """Queues of a room go to the members in it; those of a room without members go to all."""


def md5_position(text: str) -> int:
    """Where a name lies on the ring: the first four bytes of its MD5, the highest first."""
    digest = hashlib.md5(text.encode(), usedforsecurity=False).digest()
    return int.from_bytes(digest[:4], "big")


def allocate(
    queues: Collection[Q],
    members: Collection[str],
    member: str,
    strategy: AllocationStrategy = AllocationStrategy.AVERAGELY,
    **more: Any,
) -> list[Q]:
    """The queues of `member`; none if it is not one of `members`. The other arguments and errors are those of `share`.

    Errors: Invalid also when `member` is empty.
    """
    if not member:
        raise Invalid("the member's id is empty; give the client id it registered with", field="member")
    return share(queues, members, strategy, **more).get(member, [])


def share(
    queues: Collection[Q],
    members: Collection[str],
    strategy: AllocationStrategy = AllocationStrategy.AVERAGELY,
    *,
    configured: Mapping[str, Sequence[Q]] | None = None,
    rooms: Collection[str] = (),
    member_rooms: Mapping[str, str] | None = None,
    inner: AllocationStrategy = AllocationStrategy.AVERAGELY,
    virtual_nodes: int = VIRTUAL_NODES,
    ring_position: Callable[[str], int] = md5_position,
) -> "Shares[Q]":
    """Everybody's queues, sorted; no queue has two owners.

    `configured` (CONFIG) maps members to the queues they name; of two that name one queue the first by id has it.
    `rooms` (MACHINE_ROOM) lists the rooms whose queues are shared out. `member_rooms` (ROOM_NEARBY) says where each
    member runs; within a room the `inner` strategy counts. `virtual_nodes` and `ring_position` (CONSISTENT_HASH)
    shape the ring. Errors: Invalid for no members, no queues, or a room that is not named where rooms count.
    """
    if not members:
        raise Invalid("there is no member to share queues out to", field="members")
    if not queues:
        raise Invalid("there is no queue to share out", field="queues")
    ordered_queues = sorted(set(queues), key=_place)
    ordered_members = sorted(set(members))
    if strategy is AllocationStrategy.CIRCLE:
        return circle(ordered_queues, ordered_members)
    if strategy is AllocationStrategy.CONSISTENT_HASH:
        return consistent_hash(ordered_queues, ordered_members, virtual_nodes, ring_position)
    if strategy is AllocationStrategy.CONFIG:
        return _config(ordered_members, configured or {})
    if strategy is AllocationStrategy.MACHINE_ROOM:
        return _machine_room(ordered_queues, ordered_members, frozenset(rooms))
    if strategy is AllocationStrategy.ROOM_NEARBY:
        if inner in (AllocationStrategy.ROOM_NEARBY, AllocationStrategy.CONFIG, AllocationStrategy.MACHINE_ROOM):
            raise Invalid(
                f"{inner.name} cannot share out a room; take AVERAGELY, CIRCLE or CONSISTENT_HASH", field="inner"
            )

        def within(its_queues: Sequence[Q], its_members: Sequence[str]) -> "Shares[Q]":
            return share(its_queues, its_members, inner, virtual_nodes=virtual_nodes, ring_position=ring_position)

        return _room_nearby(ordered_queues, ordered_members, member_rooms or {}, within)
    return averagely(ordered_queues, ordered_members)


def averagely(queues: Sequence[Q], members: Sequence[str]) -> "Shares[Q]":
    """Contiguous blocks of sorted queues for sorted members; the first ones get one queue more."""
    size, more = divmod(len(queues), len(members))
    shares: Shares[Q] = {}
    at = 0
    for index, member in enumerate(members):
        end = at + size + (index < more)
        shares[member] = list(queues[at:end])
        at = end
    return shares


def circle(queues: Sequence[Q], members: Sequence[str]) -> "Shares[Q]":
    """Sorted queues dealt out to sorted members one by one."""
    return {member: list(queues[index :: len(members)]) for index, member in enumerate(members)}


def consistent_hash(
    queues: Sequence[Q], members: Sequence[str], virtual_nodes: int, position: Callable[[str], int]
) -> "Shares[Q]":
    """Each queue goes to the first virtual node at or after its place on the ring. No virtual nodes: nobody has any.

    Errors: Invalid for a negative number of virtual nodes.
    """
    if virtual_nodes < 0:
        raise Invalid(f"{virtual_nodes} virtual nodes; expected 0 or more", field="virtual_nodes")
    ring = {position(f"{member}-{index}"): member for member in members for index in range(virtual_nodes)}
    shares: Shares[Q] = {member: [] for member in members}
    places = sorted(ring)
    for queue in queues if places else ():
        at = bisect_left(places, position(queue_text(queue)))
        shares[ring[places[at % len(places)]]].append(queue)
    return shares


def queue_text(queue: AnyQueue) -> str:
    """A queue's name on the ring, as RocketMQ's clients write it, so that all place it alike."""
    return f"MessageQueue [topic={queue.topic}, brokerName={queue.enode}, queueId={queue.queue_id}]"


def room_of(queue: AnyQueue) -> str:
    """The room of an enode named `room@name`; empty for any other name."""
    room, at, _ = queue.enode.partition("@")
    return room if at else ""


def _config(members: Sequence[str], configured: Mapping[str, Sequence[Q]]) -> "Shares[Q]":
    taken: set[tuple[str, str, int]] = set()
    shares: Shares[Q] = {}
    for member in members:
        named = sorted({queue for queue in configured.get(member, ()) if _place(queue) not in taken}, key=_place)
        taken.update(map(_place, named))
        shares[member] = named
    return shares


def _machine_room(queues: Sequence[Q], members: Sequence[str], rooms: frozenset[str]) -> "Shares[Q]":
    ours = [queue for queue in queues if room_of(queue) in rooms and room_of(queue)]
    size = len(ours) // len(members)
    rest = ours[size * len(members) :]
    return {
        member: ours[index * size : (index + 1) * size] + rest[index : index + 1]
        for index, member in enumerate(members)
    }


def _room_nearby(
    queues: Sequence[Q],
    members: Sequence[str],
    member_rooms: Mapping[str, str],
    shared: Callable[[Sequence[Q], Sequence[str]], "Shares[Q]"],
) -> "Shares[Q]":
    members_in: dict[str, list[str]] = {}
    for member in members:
        room = member_rooms.get(member, "")
        if not room:
            raise Invalid(f"the room of the member {member!r} is not known; connect with a room", field="room")
        members_in.setdefault(room, []).append(member)
    queues_in: dict[str, list[Q]] = {}
    for queue in queues:
        room = room_of(queue)
        if not room:
            raise Invalid(f"the enode {queue.enode!r} names no room; name enodes room@name", field="queues")
        queues_in.setdefault(room, []).append(queue)
    shares: Shares[Q] = {member: [] for member in members}
    for room, its_queues in queues_in.items():
        for member, given in shared(its_queues, members_in.get(room, members)).items():
            shares[member] += given
    return {member: sorted(given, key=_place) for member, given in shares.items()}


def _place(queue: AnyQueue) -> tuple[str, str, int]:
    return queue.topic, queue.enode, queue.queue_id
