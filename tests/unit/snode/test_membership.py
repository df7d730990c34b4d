"""Members of groups."""

from ortoo.snode.membership import LocalMembership, Member
from ortoo.testing.virtual_clock import EPOCH_MS, VirtualClock


def member(name: str, *topics: str) -> Member:
    """A member."""
    return Member(name, name, frozenset(topics or ("t",)))


async def test_generations_grow_even_within_a_millisecond() -> None:
    """Joins, leaves and an empty group that fills again never take the number back."""
    membership = LocalMembership(VirtualClock())
    seen = []
    membership.on_change(lambda group: seen.append(membership.generation(group)))
    for _ in range(3):
        await membership.join("g", member("a"))
        await membership.join("g", member("b"))
        await membership.leave("g", "a")
        await membership.leave("g", "b")
    assert seen == sorted(set(seen))
    assert seen[0] >= EPOCH_MS


async def test_saying_the_same_again_changes_nothing() -> None:
    """A member that joins again unchanged, or leaves twice, is not news (E-047)."""
    membership = LocalMembership(VirtualClock())
    changes: list[str] = []
    membership.on_change(changes.append)
    await membership.join("g", member("a"))
    await membership.join("g", member("a"))
    assert changes == ["g"]
    await membership.join("g", member("a", "t", "u"))
    await membership.leave("g", "a")
    await membership.leave("g", "a")
    assert changes == ["g"] * 3
    assert membership.members("g") == {}


async def test_groups_do_not_know_each_other() -> None:
    """A change in one group is told for that group only."""
    membership = LocalMembership(VirtualClock())
    changes: list[str] = []
    await membership.join("g", member("a"))
    membership.on_change(changes.append)
    await membership.join("h", member("a"))
    assert changes == ["h"]
    assert list(membership.members("g")) == ["a"]
