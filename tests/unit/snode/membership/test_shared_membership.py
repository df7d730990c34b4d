"""Membership over several snodes, as decisions: which record counts."""

import dataclasses

from ortoo.snode.membership.group_members import GroupMember, Subscription, decode_member
from ortoo.snode.membership.shared_membership import SharedMembership, StoredMember
from ortoo.verification.time.virtual_clock import VirtualClock


def member(name: str, incarnation: str, session: str = "") -> GroupMember:
    """A member of one snode."""
    return GroupMember(
        name, session or f"{name} at {incarnation}", incarnation=incarnation, subscriptions=(Subscription("t"),)
    )


def names(membership: SharedMembership) -> dict[str, str]:
    """Client id to session id."""
    return {name: one.session_id for name, one in membership.members("g").items()}


def read(here: SharedMembership, *stored: StoredMember) -> None:
    """A reading of group g finds these records."""
    here.begin_reading("g")
    here.apply_reading("g", {one.member.client_id: one for one in stored})
    here.finish_reading("g")


def test_own_members_count_at_once_and_others_as_they_are_heard() -> None:
    """E-060: a view has the own members and the others' by the store."""
    here = SharedMembership("here", VirtualClock())
    here.join("g", member("a", "here"))
    assert here.unpublished == {("g", "a"): member("a", "here")}
    here.apply_stored(("g", "b"), 7, member("b", "there"))
    assert list(names(here)) == ["a", "b"]
    here.apply_stored(("g", "b"), 8, None)
    assert list(names(here)) == ["a"]


def test_the_last_word_about_a_client_counts_and_late_news_does_not() -> None:
    """A session elsewhere replaces the one here if the store got it later, and only then."""
    here = SharedMembership("here", VirtualClock())
    here.join("g", member("a", "here"))
    here.apply_stored(("g", "a"), 3, member("a", "there"))
    assert names(here) == {"a": "a at here"}
    here.on_published(("g", "a"), member("a", "here"), 5)
    here.apply_stored(("g", "a"), 4, member("a", "there"))
    assert names(here) == {"a": "a at here"}
    here.apply_stored(("g", "a"), 6, member("a", "there"))
    assert names(here) == {"a": "a at there"}
    here.leave("g", "a", "a at here")
    assert names(here) == {"a": "a at there"}


def test_who_was_taken_for_dead_says_itself_again() -> None:
    """If others removed this snode's members from the store, they are written again; those that left are not."""
    here = SharedMembership("here", VirtualClock())
    here.join("g", member("a", "here"))
    here.on_published(("g", "a"), member("a", "here"), 1)
    here.apply_stored(("g", "a"), 2, None)
    assert here.unpublished == {("g", "a"): member("a", "here")}
    here.on_published(("g", "a"), member("a", "here"), 3)
    here.apply_stored(("g", "b"), 4, member("b", "here"))
    assert here.unpublished == {("g", "b"): "b at here"}


def test_members_of_a_dead_snode_are_found_and_dropped() -> None:
    """Only those of incarnations without heartbeats."""
    here = SharedMembership("here", VirtualClock())
    for name, incarnation in (("a", "there"), ("b", "gone")):
        here.apply_stored(("g", name), 1, member(name, incarnation))
    assert [key for key, _ in here.members_of_dead_snodes({"there", "here"})] == [("g", "b")]
    here.remove_dead(("g", "b"), "another session")
    here.remove_dead(("g", "b"), "b at gone")
    assert list(names(here)) == ["a"]


def test_a_full_reading_takes_away_what_is_not_in_it() -> None:
    """Members of others that it lacks are removed; own ones stay."""
    here = SharedMembership("here", VirtualClock())
    here.join("g", member("a", "here"))
    here.apply_stored(("g", "b"), 1, member("b", "there"))
    read(here, StoredMember(2, member("c", "there")))
    assert sorted(names(here)) == ["a", "c"]
    assert list(here.groups()) == ["g"]


def test_a_reading_without_our_own_has_them_said_again() -> None:
    """A store that was emptied and counts from 0 gets our members again, and counts for the others'."""
    here = SharedMembership("here", VirtualClock())
    here.join("g", member("a", "here"))
    here.on_published(("g", "a"), member("a", "here"), 900)
    here.apply_stored(("g", "b"), 901, member("b", "there"))
    here.remove_dead(("g", "b"), member("b", "there").session_id)
    read(here, StoredMember(3, member("b", "there")))
    assert sorted(names(here)) == ["a", "b"]
    assert here.unpublished == {("g", "a"): member("a", "here")}


async def test_what_was_heard_during_a_reading_is_newer_than_it() -> None:
    """A read that began before a member joined does not remove it, and does not bring back one that left meanwhile."""
    here = SharedMembership("here", VirtualClock())
    await here.follow("g")
    for name in ("b", "c"):
        here.on_record(("g", name), 5, member(name, "there"))
    here.begin_reading("g")
    here.on_record(("g", "a"), 7, member("a", "there"))
    here.on_record(("g", "c"), 8, None)
    here.apply_reading("g", {name: StoredMember(5, member(name, "there")) for name in ("b", "c")})
    here.finish_reading("g")
    assert sorted(names(here)) == ["a", "b"]


def test_a_member_survives_its_text() -> None:
    """The text for other snodes is decoded to an equal member."""
    one = dataclasses.replace(member("a", "here"), room="r", rooms=("x", "y"), since_ms=5, broadcast=True)
    assert decode_member(one.encode()) == one


def test_a_group_without_members_is_forgotten() -> None:
    """Groups come and go with ever new names. Nothing of an empty one stays, not even its number."""
    here = SharedMembership("here", VirtualClock())
    here.join("g", member("a", "here"))
    here.apply_stored(("g", "b"), 1, member("b", "there"))
    here.leave("g", "a", "a at here")
    assert here.generation("g") > 0
    here.apply_stored(("g", "b"), 2, None)
    assert here.generation("g") == 0
