"""The groups that a snode follows: which it reads, when it knows them, and when it forgets them."""

import asyncio

from ortoo.snode.membership.group_members import GroupMember
from ortoo.snode.membership.shared_membership import UNUSED_MAX, UNUSED_S, SharedMembership, StoredMember
from ortoo.verification.time.virtual_clock import VirtualClock
from ortoo.verification.time.virtual_time import in_virtual_time
from tests.work_done import WorkDone, count_work

A = ("g", "a")


def member(name: str, incarnation: str = "there") -> GroupMember:
    """A member of one snode."""
    return GroupMember(name, f"{name} at {incarnation}", incarnation=incarnation)


def connected(clock: VirtualClock | None = None) -> SharedMembership:
    """The membership of snode `here`, whose store answers."""
    here = SharedMembership("here", clock or VirtualClock())
    here.on_connected()
    return here


def read(here: SharedMembership, group: str, *stored: GroupMember, version: int = 1, number: int = 10) -> None:
    """A reading of a group that finds these members."""
    here.begin_reading(group)
    here.set_version(group, version, number)
    here.apply_reading(group, {one.client_id: StoredMember(number, one) for one in stored})
    here.finish_reading(group)


def test_records_of_other_groups_are_ignored() -> None:
    """A snode without members of a group keeps nothing about it."""
    here = connected()
    here.on_record(A, 5, member("a"))
    assert (here.follows("g"), list(here.groups()), here.followed_groups()) == (False, [], [])


def test_a_group_is_complete_when_it_was_read() -> None:
    """The first member here waits for the members elsewhere; without the store it waits for nothing."""
    here, told = connected(), list[str]()
    here.on_change = told.append
    assert here.is_complete("g")
    here.join("g", member("a", "here"))
    assert (here.is_complete("g"), list(here.unread)) == (False, ["g"])
    told.clear()
    read(here, "g", member("b"))
    assert (here.is_complete("g"), sorted(here.members("g")), list(here.unread)) == (True, ["a", "b"], [])
    assert told == ["g", "g"]  # the member, and the end of the first reading
    here.join("h", member("a", "here"))
    told.clear()
    here.on_disconnected()
    assert (here.is_complete("h"), told) == (True, ["h"])


@in_virtual_time
async def test_a_request_waits_until_the_group_is_known() -> None:
    """It continues after the reading, after a loss of the store, and without a store."""
    here, loop = connected(), asyncio.get_running_loop()
    here.on_unread = lambda: loop.call_soon(read, here, "g", member("b"))  # type: ignore[assignment]
    await here.follow("g")
    assert list(here.members("g")) == ["b"]
    here.on_unread = lambda: loop.call_soon(here.on_disconnected)  # type: ignore[assignment]
    await here.follow("h")
    assert not here.is_connected
    await here.follow("i")


def test_a_lost_change_is_found_by_the_version_and_an_arrived_one_is_counted() -> None:
    """Each change adds one to the version in the store. Records that the reading had already are not counted."""
    here = connected()
    here.join("g", member("a", "here"))
    here.begin_reading("g")
    here.on_record(("g", "b"), 9, member("b"))
    here.on_record(("g", "c"), 12, member("c"))
    here.set_version("g", 4, 10)
    here.finish_reading("g")
    assert [here.differs("g", version) for version in (4, 5, 6)] == [True, False, True]
    here.on_record(("g", "b"), 13, None)
    assert [here.differs("g", version) for version in (5, 6, 7)] == [True, False, True]
    assert not here.differs("unknown", 7)


@in_virtual_time
async def test_a_group_is_forgotten_after_its_last_use() -> None:
    """Groups with own members, or with records for the store, are followed; others only for a while."""
    clock = VirtualClock()
    here = connected(clock)
    here.on_unread = lambda: read(here, next(iter(here.unread)), member("b"))
    for group in ("own", "left", "asked"):
        await here.follow(group)
    for group in ("own", "left"):
        here.join(group, member("a", "here"))
        here.on_published((group, "a"), member("a", "here"), 20)
    here.leave("left", "a", "a at here")
    clock.advance(UNUSED_S - 1)
    await here.follow("asked")
    clock.advance(2)
    here.forget_unused()
    assert here.followed_groups() == ["own", "left", "asked"]
    here.on_published(("left", "a"), "a at here", 21)
    here.forget_unused()
    assert here.followed_groups() == ["own", "asked"]
    clock.advance(UNUSED_S)
    here.forget_unused()
    assert (here.followed_groups(), list(here.groups()), here.generation("asked")) == (["own"], ["own"], 0)
    assert [key for key, _ in here.members_of_dead_snodes(())] == [("own", "b")]


@in_virtual_time
async def test_the_number_of_groups_that_were_asked_about_is_limited() -> None:
    """A caller that names ever new groups does not fill the memory."""
    here = SharedMembership("here", VirtualClock())
    for number in range(UNUSED_MAX + 100):
        await here.follow(f"g{number}")
    here.forget_unused()
    assert len(here.followed_groups()) == UNUSED_MAX


def test_an_own_member_that_left_is_a_ghost_in_the_store() -> None:
    """A store that returns to an older state may have it again; members of others and current ones are none."""
    here = connected()
    here.join("g", member("a", "here"))
    assert not here.is_ghost(A, member("a", "here"))
    here.on_published(A, member("a", "here"), 1)
    assert not here.is_ghost(A, member("a", "here"))
    assert not here.is_ghost(("x", "b"), member("b"))
    assert here.is_ghost(("x", "a"), member("a", "here"))
    here.withdraw(("x", "a"), member("a", "here"))
    assert here.unpublished == {("x", "a"): "a at here"}


def test_a_record_that_arrives_before_an_own_one_is_stored_counts_afterwards() -> None:
    """A client leaves here and joins elsewhere: the store refuses the late departure and keeps the join."""
    here = connected()
    here.join("g", member("a", "here"))
    here.on_published(A, member("a", "here"), 5)
    here.leave("g", "a", "a at here")
    here.begin_reading("g")
    here.on_record(A, 7, member("a"))
    here.set_version("g", 1, 9)
    here.apply_reading("g", {"a": StoredMember(7, member("a"))})
    here.finish_reading("g")
    assert dict(here.members("g")) == {}
    here.on_published(A, "a at here", 0)
    assert (dict(here.members("g")), here.unpublished) == ({"a": member("a")}, {})


def test_a_record_that_an_own_one_has_replaced_does_not_count() -> None:
    """A client joins elsewhere, then here, then leaves: the earlier record does not come back."""
    here = connected()
    here.join("g", member("a", "here"))
    here.on_record(A, 7, member("a"))
    here.leave("g", "a", "a at here")
    here.on_published(A, member("a", "here"), 8)
    here.on_published(A, "a at here", 9)
    assert (dict(here.members("g")), here.unpublished) == ({}, {})


def work_of_one_change(count: int) -> WorkDone:
    """The work for a change, a comparison, and a heartbeat, beside members of other groups at other snodes."""
    here = connected()
    here.join("g", member("a", "here"))
    read(here, "g", member("b"))
    for number in range(count):
        here.on_record((f"g{number}", "c"), number, member("c"))
    with count_work() as done:
        here.on_record(("g", "b"), 20, None)
        here.on_record(("other", "b"), 21, member("b"))
        here.members_of_dead_snodes({"there", "here"})
        here.forget_unused()
        assert [here.differs(group, 2) for group in here.followed_groups()] == [False]
    return done


def test_members_of_other_groups_cost_nothing() -> None:
    """Four times the members elsewhere: the same work and memory here."""
    few, many = work_of_one_change(1_000), work_of_one_change(4_000)
    assert many.is_at_most(few), (few, many)
