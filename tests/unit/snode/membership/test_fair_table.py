"""A table whose entries belong to users or hosts: none of them fills it alone."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ortoo.common.errors import Overloaded
from ortoo.snode.membership.fair_table import FairTable
from ortoo.snode.policy.principal import PRINCIPAL, Principal, owner_at


def fill(table: FairTable[int], owner: str) -> None:
    """Add entries of an owner until one is refused."""
    with pytest.raises(Overloaded):
        for number in range(table.capacity + 1):
            table.put(f"{owner}{number}", number, owner)


@pytest.mark.parametrize("greedy", [1, 2, 3])
def test_greedy_owners_leave_entries_for_others(greedy: int) -> None:
    """An owner that adds whatever it can leaves a fifth of the table, the next one a fifth of that."""
    table = FairTable[int](1_000, "clients are connected")
    for _ in range(3):
        for number in range(greedy):
            fill(table, f"greedy-{number}-")
    assert table.capacity - len(table) == 1_000 // 5**greedy
    table.put("honest", 0, "honest")


def test_the_refusal_names_the_owner_and_what_to_do() -> None:
    """The owner can see that its own entries are the reason."""
    table = FairTable[int](10, "clients are connected")
    with pytest.raises(Overloaded, match=r"8 of them from ann\. The last 2 are for others"):
        for number in range(9):
            table.put(str(number), number, "ann")
    assert len(table) == 8


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 30), st.booleans())))
def test_removed_entries_can_be_used_again(steps: list[tuple[str, int, bool]]) -> None:
    """The table counts what it holds, whatever was added, refused and removed in whichever order."""
    table = FairTable[int](8, "clients are connected")
    held: dict[str, str] = {}
    for owner, number, adds in steps:
        key = f"{owner}{number}"
        if not adds:
            assert (table.remove(key) is None) == (held.pop(key, None) is None)
        elif key not in held:
            try:
                table.put(key, number, owner)
            except Overloaded:
                assert list(held.values()).count(owner) >= 4 * (8 - len(held))
            else:
                held[key] = owner
    assert set(table) == set(held)


def test_the_owner_is_the_user_or_the_host() -> None:
    """A user has one share from all its hosts; without access control each host has one."""
    assert owner_at("10.0.0.1") == "@10.0.0.1"
    token = PRINCIPAL.set(Principal("ann", is_unrestricted=False))
    assert owner_at("10.0.0.1") == "ann"
    PRINCIPAL.reset(token)
