"""Assignment of queues: each strategy, its test vectors and its edge cases."""

from itertools import pairwise
from typing import NamedTuple

import pytest

from ortoo.common.errors import Invalid
from ortoo.common.groups.allocation import AllocationStrategy, allocate, assign_queues, md5_position, queue_text


class Place(NamedTuple):
    """A queue for the functions."""

    topic: str
    enode: str
    queue_id: int


def queues(count: int, enode: str = "b") -> list[Place]:
    return [Place("T", enode, number) for number in range(count)]


def members(count: int) -> list[str]:
    return [f"CID-{number}" for number in range(count)]


def ids(shares: dict[str, list[Place]]) -> list[list[int]]:
    return [[queue.queue_id for queue in shares[member]] for member in sorted(shares)]


@pytest.mark.parametrize(
    ("queue_count", "member_count", "expected"),
    [
        (8, 3, [[0, 1, 2], [3, 4, 5], [6, 7]]),
        (7, 5, [[0, 1], [2, 3], [4], [5], [6]]),
        (6, 3, [[0, 1], [2, 3], [4, 5]]),
        (4, 6, [[0], [1], [2], [3], [], []]),
        (1, 1, [[0]]),
    ],
)
def test_averagely_gives_blocks_and_the_rest_to_the_first(
    queue_count: int, member_count: int, expected: list[list[int]]
) -> None:
    """Contiguous blocks by sorted id; with more group members than queues the last ones are idle (E-120, E-121)."""
    assert ids(assign_queues(queues(queue_count), members(member_count))) == expected


def test_circle_deals_one_by_one() -> None:
    """E-122: 8 queues for 3 members are 0,3,6 and 1,4,7 and 2,5."""
    assert ids(assign_queues(queues(8), members(3), AllocationStrategy.CIRCLE)) == [[0, 3, 6], [1, 4, 7], [2, 5]]


def test_consistent_hash_has_the_known_vector() -> None:
    """E-123: three members with ten virtual nodes on RocketMQ's ring."""
    assert md5_position("CID-0-0") == 1900518137
    assert md5_position(queue_text(queues(1)[0])) == 562732085
    assert ids(assign_queues(queues(8), members(3), AllocationStrategy.CONSISTENT_HASH)) == [
        [1],
        [0, 3, 5, 6, 7],
        [2, 4],
    ]


def test_a_newcomer_takes_queues_and_no_others_move() -> None:
    """E-123: with each further group member, a queue stays where it was or goes to the new one."""
    owners = []
    for count in range(1, 12):
        shares = assign_queues(queues(64), members(count), AllocationStrategy.CONSISTENT_HASH)
        owners.append({queue: member for member, given in shares.items() for queue in given})
    for count, (before, after) in enumerate(pairwise(owners), 1):
        newcomer = max(set(members(count + 1)) - set(members(count)))
        assert {after[queue] for queue in before if after[queue] != before[queue]} <= {newcomer}


def test_the_ring_may_be_shaped() -> None:
    """E-123: without virtual nodes no queue is assigned, a negative number is refused, the hash can be replaced."""
    strategy = AllocationStrategy.CONSISTENT_HASH
    assert ids(assign_queues(queues(3), members(2), strategy, virtual_nodes=0)) == [[], []]
    with pytest.raises(Invalid, match="-1 virtual nodes"):
        assign_queues(queues(3), members(2), strategy, virtual_nodes=-1)
    positions = {"CID-0-0": 10, "CID-1-0": 20} | {queue_text(q): 10 * q.queue_id for q in queues(4)}
    shares = assign_queues(queues(4), members(2), strategy, virtual_nodes=1, ring_position=positions.__getitem__)
    assert ids(shares) == [[0, 1, 3], [2]]


def test_config_gives_what_was_named() -> None:
    """Each group member gets its own list; a queue that two group members name has one owner (E-124)."""
    named = {"CID-0": queues(8)[5:7], "CID-1": [*queues(8)[6:8], Place("other", "x", 0)]}
    shares = assign_queues(queues(8), members(3), AllocationStrategy.CONFIG, configured=named)
    assert shares["CID-0"] == queues(8)[5:7]
    assert shares["CID-1"] == [queues(8)[7], Place("other", "x", 0)]
    assert shares["CID-2"] == []


def test_machine_room_shares_the_listed_rooms_alone() -> None:
    """Five queues of a zone for two group members are 0,1,4 and 2,3; queues elsewhere have no owner (E-124)."""
    everything = queues(5, "a@e") + queues(4, "b@e") + queues(4, "plain") + queues(2, "@odd")
    shares = assign_queues(everything, members(2), AllocationStrategy.MACHINE_ROOM, zones=["a", ""])
    assert ids(shares) == [[0, 1, 4], [2, 3]]
    assert {queue.enode for given in shares.values() for queue in given} == {"a@e"}


def test_a_room_is_served_by_its_own_members_as_long_as_it_has_any() -> None:
    """Queues of another zone are assigned only when it has no group member, and then to all (E-124)."""
    everything = queues(4, "a@e") + queues(4, "b@e") + queues(3, "c@e")
    rooms = {"CID-0": "a", "CID-1": "b", "CID-2": "b"}
    shares = assign_queues(everything, members(3), AllocationStrategy.ROOM_NEARBY, member_zones=rooms)
    assert [(q.enode, q.queue_id) for q in shares["CID-0"]] == [("a@e", n) for n in range(4)] + [("c@e", 0)]
    assert [(q.enode, q.queue_id) for q in shares["CID-1"]] == [("b@e", 0), ("b@e", 1), ("c@e", 1)]
    assert [(q.enode, q.queue_id) for q in shares["CID-2"]] == [("b@e", 2), ("b@e", 3), ("c@e", 2)]
    circled = assign_queues(
        everything, members(3), AllocationStrategy.ROOM_NEARBY, member_zones=rooms, inner=AllocationStrategy.CIRCLE
    )
    assert [(q.enode, q.queue_id) for q in circled["CID-1"]] == [("b@e", 0), ("b@e", 2), ("c@e", 1)]


def test_rooms_must_be_named() -> None:
    """E-124: a group member or an enode without a zone is refused by name, and so is a strategy unfit for zones."""
    strategy = AllocationStrategy.ROOM_NEARBY
    with pytest.raises(Invalid, match="'CID-1'"):
        assign_queues(queues(2, "a@e"), members(2), strategy, member_zones={"CID-0": "a"})
    with pytest.raises(Invalid, match="'plain'"):
        assign_queues(queues(2, "plain"), members(1), strategy, member_zones={"CID-0": "a"})
    with pytest.raises(Invalid, match="CONFIG"):
        assign_queues(
            queues(2, "a@e"), members(1), strategy, member_zones={"CID-0": "a"}, inner=AllocationStrategy.CONFIG
        )


@pytest.mark.parametrize("strategy", list(AllocationStrategy))
def test_wrong_inputs_are_refused_and_strangers_get_nothing(strategy: AllocationStrategy) -> None:
    """No group member, no queue and no id are errors; a group member that is not in the list has no queues."""
    more = {"member_zones": {"CID-0": "a", "CID-1": "a"}}
    with pytest.raises(Invalid, match="no group member"):
        allocate(queues(2, "a@e"), [], "CID-0", strategy, **more)
    with pytest.raises(Invalid, match="no queue"):
        allocate([], members(2), "CID-0", strategy, **more)
    with pytest.raises(Invalid, match="empty"):
        allocate(queues(2, "a@e"), members(2), "", strategy, **more)
    assert allocate(queues(2, "a@e"), members(2), "stranger", strategy, **more) == []


@pytest.mark.parametrize(
    "strategy", [AllocationStrategy.AVERAGELY, AllocationStrategy.CIRCLE, AllocationStrategy.CONSISTENT_HASH]
)
def test_every_queue_has_one_owner_in_whatever_order_inputs_come(strategy: AllocationStrategy) -> None:
    """E-125: for all numbers of queues and group members assignments are complete, disjoint and sorted alike."""
    for queue_count in range(1, 20):
        for member_count in range(1, 12):
            shares = assign_queues(queues(queue_count), members(member_count), strategy)
            given = [queue for share_ in shares.values() for queue in share_]
            assert sorted(given) == queues(queue_count)
            assert assign_queues(queues(queue_count)[::-1], members(member_count)[::-1], strategy) == shares
