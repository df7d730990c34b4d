"""Sets of placements: equal ones are one, and the counts of a directory follow every change."""

from hypothesis import given
from hypothesis import strategies as st

from ortoo.common.directory.topic import Placement
from ortoo.namesrv.decisions.placements import PlacementSet, PlacementSetUses

ENODES = ("a", "b", "c")
SETS = st.lists(st.sampled_from(ENODES), max_size=3, unique=True).map(
    lambda names: PlacementSet.of(tuple(Placement(name, 4, 4) for name in sorted(names)))
)


def test_equal_placements_are_one_set() -> None:
    """The id depends on the content alone, and each part of the content changes it."""
    one, same = PlacementSet.of((Placement("e", 4, 3),)), PlacementSet.of((Placement("e", 4, 3),))
    assert one is same
    others = [(), (Placement("f", 4, 3),), (Placement("e", 5, 3),), (Placement("e", 4, 4),)]
    ids = {PlacementSet.of(other).set_id for other in others} | {one.set_id}
    assert len(ids) == 5
    assert PlacementSet().set_id == 0
    assert all(0 <= one < 1 << 64 for one in ids)
    assert one.set_id == 0x8C7658838985E783  # stored in databases


@given(st.lists(st.tuples(SETS, st.booleans()), max_size=12))
def test_uses_follow_every_topic(topics: list[tuple[PlacementSet, bool]]) -> None:
    """After any additions and removals, sizes and enodes are those of the topics that are left."""
    uses = PlacementSetUses()
    for placements, _ in topics:
        uses.add(placements)
    for placements, is_left in topics:
        if not is_left:
            uses.remove(placements)
    left = [placements for placements, is_left in topics if is_left]
    assert uses.enodes() == {place.enode for one in left for place in one}
    assert uses.expanded_bytes == sum(one.wire_bytes for one in left)
    assert uses.wire_bytes == PlacementSetUses().new_bytes(left)
    assert uses.new_bytes(left) == 0
