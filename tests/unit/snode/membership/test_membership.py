"""Members of groups."""

import dataclasses

from ortoo.snode.membership.group_members import GroupMember, Subscription
from ortoo.snode.membership.group_membership import Membership
from ortoo.verification.time.virtual_clock import EPOCH_MS, VirtualClock


def member(name: str, *topics: str) -> GroupMember:
    """A member."""
    return GroupMember(name, f"session of {name}", subscriptions=tuple(map(Subscription, topics or ("t",))))


async def test_generations_grow_even_within_a_millisecond() -> None:
    """Joins, leaves and an empty group that fills again never decrease the number."""
    membership = Membership(VirtualClock())
    seen = []
    membership.on_change = lambda group: seen.append(membership.generation(group))
    for _ in range(3):
        membership.join("g", member("a"))
        membership.join("g", member("b"))
        membership.leave("g", "a", "session of a")
        membership.leave("g", "b", "session of b")
    assert seen == sorted(set(seen))
    assert seen[0] >= EPOCH_MS


async def test_saying_the_same_again_changes_nothing() -> None:
    """A member that joins again unchanged, or leaves twice, causes no notification (E-047)."""
    membership = Membership(VirtualClock())
    changes: list[str] = []
    membership.on_change = changes.append
    membership.join("g", member("a"))
    membership.join("g", member("a"))
    assert changes == ["g"]
    membership.join("g", member("a", "t", "u"))
    membership.leave("g", "a", "session of a")
    membership.leave("g", "a", "session of a")
    assert changes == ["g"] * 3
    assert membership.members("g") == {}


async def test_groups_do_not_know_each_other() -> None:
    """A change in one group notifies only for that group."""
    membership = Membership(VirtualClock())
    changes: list[str] = []
    membership.join("g", member("a"))
    membership.on_change = changes.append
    membership.join("h", member("a"))
    assert changes == ["h"]
    assert list(membership.members("g")) == ["a"]


async def test_a_client_id_belongs_to_its_newest_session() -> None:
    """A session that connects again replaces the old one, which can no longer remove it."""
    membership = Membership(VirtualClock())
    membership.join("g", member("a"))
    membership.join("g", dataclasses.replace(member("a"), session_id="second"))
    membership.leave("g", "a", "session of a")
    assert membership.members("g")["a"].session_id == "second"
