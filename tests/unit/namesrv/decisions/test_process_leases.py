"""The leases of registered processes."""

import pytest

from ortoo.common.cluster.refused import DOUBLE_FIELD, LEASE_FIELD, OTHER_STORE_FIELDS
from ortoo.common.errors import Conflict, Fenced, Invalid, Overloaded
from ortoo.namesrv.decisions.process_leases import ENODES_MAX, Enode, ProcessLeases, Snode


def enode(leases: ProcessLeases, now_s: float, *, store_id: str = "s", address: str = "h:1") -> Enode | None:
    """Register enode `e`."""
    return leases.register_enode(Enode("e", address, store_id), now_s)


def snode(
    leases: ProcessLeases, now_s: float, name: str = "n", incarnation: str = "1", *, shares: bool = False
) -> Snode | None:
    """Register a snode."""
    return leases.register_snode(Snode(name, f"{name}:1"), incarnation, shares_membership=shares, now_s=now_s)


def test_only_news_are_told() -> None:
    """The first registration and a new address are published; a heartbeat is not."""
    leases = ProcessLeases(15)
    assert enode(leases, 0) == Enode("e", "h:1", "s")
    assert enode(leases, 5) is None
    assert enode(leases, 6, address="h:2") == Enode("e", "h:2", "s")


def test_lease_ends_at_its_time_unless_renewed() -> None:
    """Renewed at 10, it is alive at 24.9 and dead at 25. It is published once, and the enode stays registered."""
    leases = ProcessLeases(15)
    enode(leases, 0)
    snode(leases, 0)
    enode(leases, 10)
    assert leases.expire(24.9) == ([], [Snode("n", "n:1", alive=False)])
    assert leases.expire(25) == ([Enode("e", "h:1", "s", alive=False)], [])
    assert leases.expire(26) == ([], [])
    assert (leases.enodes()["e"].alive, leases.snodes()) == (False, {})
    assert enode(leases, 30) == Enode("e", "h:1", "s")


def test_goodbye_ends_a_lease_once() -> None:
    """The end of a lease that has ended, or never existed, is not published."""
    leases = ProcessLeases(15)
    enode(leases, 0)
    snode(leases, 0)
    assert leases.end_enode_lease("e") == Enode("e", "h:1", "s", alive=False)
    assert leases.end_snode_lease("n") == Snode("n", "n:1", alive=False)
    assert (leases.end_enode_lease("e"), leases.end_snode_lease("n"), leases.end_enode_lease("x")) == (None, None, None)


def test_second_store_under_a_living_name_is_refused() -> None:
    """Another store is refused during the lease, with the remaining time; then it may have the name."""
    leases = ProcessLeases(15)
    enode(leases, 0)
    with pytest.raises(Conflict, match="Give this enode another name") as caught:
        enode(leases, 14, store_id="other")
    assert caught.value.retry_after_ms == 1000
    assert caught.value.field == DOUBLE_FIELD
    assert enode(leases, 15, store_id="other") == Enode("e", "h:1", "other")


def test_the_successor_of_a_store_waits_for_the_lease_alone() -> None:
    """An operator made it from the registered store. The error has a separate field, and ends with the lease."""
    leases = ProcessLeases(15)
    enode(leases, 0)
    successor = Enode("e", "h:2", "other", made_from="s")
    with pytest.raises(Conflict, match="gets the lease when the current lease ends") as caught:
        leases.check_double(successor, 14, may_succeed=True)
    assert caught.value.field == LEASE_FIELD
    assert LEASE_FIELD not in OTHER_STORE_FIELDS
    assert caught.value.retry_after_ms == 1000
    leases.check_double(successor, 15, may_succeed=True)


def test_a_copy_of_a_store_beside_its_origin_is_named_and_routes_stay_with_one() -> None:
    """G3: a cloned machine or a copied folder has the store id of its origin, and both would assign the same offsets.

    As after a move, the latest address gets the name. The earlier one is refused while the later one is alive.
    """
    leases = ProcessLeases(15)
    enode(leases, 0)
    assert enode(leases, 5, address="h:2") == Enode("e", "h:2", "s")
    for now_s in (6, 10, 19.9):
        with pytest.raises(Conflict, match="Two processes have copies of store s") as caught:
            enode(leases, now_s)
        assert caught.value.retry_after_ms
        if now_s == 6:
            assert enode(leases, now_s, address="h:2") is None
    assert enode(leases, 21) == Enode("e", "h:1", "s")
    leases.end_enode_lease("e")
    assert enode(leases, 22, address="h:2") == Enode("e", "h:2", "s")
    assert leases.register_enode(Enode("e", "h:1", "s", epoch=1), 23) == Enode("e", "h:1", "s", epoch=1)


@pytest.mark.parametrize(("first", "second"), [(False, False), (True, False), (False, True)])
def test_second_snode_without_shared_membership_is_refused(first: bool, second: bool) -> None:
    """If either keeps membership to itself, groups would be split; the error names the setting."""
    leases = ProcessLeases(15)
    snode(leases, 0, "a", shares=first)
    with pytest.raises(Conflict, match="ORTOO_SNODE_REDIS_URL") as caught:
        snode(leases, 1, "b", shares=second)
    assert caught.value.retry_after_ms == 14_000
    assert snode(leases, 15, "b", shares=second) is not None


def test_snodes_that_share_membership_live_side_by_side() -> None:
    """Both are registered."""
    leases = ProcessLeases(15)
    snode(leases, 0, "a", shares=True)
    snode(leases, 0, "b", shares=True)
    assert sorted(leases.snodes()) == ["a", "b"]


def test_restarted_snode_replaces_its_former_self_and_fences_it() -> None:
    """A new incarnation gets the name at once; the old one learns that it was replaced."""
    leases = ProcessLeases(15)
    snode(leases, 0, incarnation="1")
    assert snode(leases, 1, incarnation="2") is None
    with pytest.raises(Fenced, match="different names"):
        snode(leases, 2, incarnation="1")


@pytest.mark.parametrize("address", ["", "host", ":1", "host:", "host:0", "host:65536", "host:x", "h" * 300 + ":1"])
def test_address_must_be_reachable(address: str) -> None:
    """An invalid address is refused with its field."""
    with pytest.raises(Invalid) as caught:
        enode(ProcessLeases(15), 0, address=address)
    assert caught.value.field == "enode.address"


def test_name_store_id_and_incarnation_must_be_said() -> None:
    """The error names each missing text."""
    for call, field in (
        (lambda: ProcessLeases(1).register_enode(Enode("", "h:1", "s"), 0), "enode.name"),
        (lambda: enode(ProcessLeases(1), 0, store_id=""), "enode.store_id"),
        (lambda: snode(ProcessLeases(1), 0, incarnation=""), "incarnation"),
    ):
        with pytest.raises(Invalid) as caught:
            call()
        assert caught.value.field == field


def test_number_of_enodes_is_limited_and_the_dead_make_room() -> None:
    """With the maximum of live enodes a new one is refused; a dead enode is removed for a new one."""
    leases = ProcessLeases(15)
    for number in range(ENODES_MAX):
        leases.register_enode(Enode(f"e{number}", "h:1", "s"), 0)
    with pytest.raises(Overloaded):
        enode(leases, 1)
    leases.end_enode_lease("e7")
    assert enode(leases, 1) is not None
    assert "e7" not in leases.enodes()


def test_an_enode_that_follows_another_directory_for_a_whole_lease_is_marked() -> None:
    """After the loss of a database enodes change within a lease, so a shorter difference is no fault."""
    leases, one = ProcessLeases(15), Enode("e", "h:1", "s")
    for now_s, other, marked in (
        (0, "b", ""),
        (14, "b", ""),
        (15, "b", "b"),
        (20, "", ""),
        (21, "b", ""),
        (36, "b", "b"),
    ):
        leases.register_enode(one, now_s, other)
        assert leases.enodes()["e"].other_directory_id == marked
