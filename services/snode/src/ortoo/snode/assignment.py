"""Which member of a group gets which queues: a pure function of sorted inputs, the same at every snode."""

from collections.abc import Iterable, Mapping, Sequence

from ortoo.snode.routes import Queue


def averagely(queues: Sequence[Queue], members: Sequence[str], member: str) -> Sequence[Queue]:
    """The contiguous share of `member`: equal blocks in order, the first members get one queue more.

    Both inputs must be sorted. A member that is not in the list gets nothing.
    """
    if member not in members:
        return ()
    index, count = members.index(member), len(members)
    share, more = divmod(len(queues), count)
    if index < more:
        return queues[index * (share + 1) : (index + 1) * (share + 1)]
    start = index * share + more
    return queues[start : start + share]


def assign(wanted: Mapping[str, Iterable[str]], queues: Mapping[str, Sequence[Queue]]) -> dict[str, list[Queue]]:
    """Share out all topics: `wanted` maps member id to topics, `queues` topic to its readable queues.

    Returns each member's queues, sorted; every queue of a wanted topic is in exactly one list.
    """
    members_of: dict[str, list[str]] = {}
    for member in sorted(wanted):
        for topic in set(wanted[member]):
            members_of.setdefault(topic, []).append(member)
    given: dict[str, list[Queue]] = {member: [] for member in wanted}
    for topic in sorted(members_of):
        ordered = sorted(queues.get(topic, ()))
        for member in members_of[topic]:
            given[member] += averagely(ordered, members_of[topic], member)
    return given
