"""The records of a snode for the shared store, those it accepts from it, and the notified groups."""

import dataclasses

import pytest

from ortoo.common.errors import Unsupported
from ortoo.common.groups.allocation import AllocationStrategy
from ortoo.snode.membership.assignment import assign
from ortoo.snode.membership.group_members import (
    GroupMember,
    SlowConsumerRule,
    Subscription,
    assignable_client_ids,
    decode_member,
    merge_subscriptions,
)
from ortoo.snode.membership.group_membership import Membership
from ortoo.snode.membership.shared_membership import SharedMembership, StoredMember
from ortoo.verification.time.virtual_clock import VirtualClock

A, B = ("g", "a"), ("g", "b")


class Watched(SharedMembership):
    """A membership of the snode "here" that records the groups of which its listener was notified."""

    def __init__(self) -> None:
        super().__init__("here", VirtualClock())
        self.told: list[str] = []
        self.wakes = 0
        self.on_change = self.told.append
        self.on_unpublished = self._woken

    def _woken(self) -> None:
        self.wakes += 1


def member(name: str, incarnation: str = "here", session: str = "") -> GroupMember:
    """A member of one snode."""
    return GroupMember(name, session or f"{name} at {incarnation}", incarnation=incarnation)


def test_a_join_is_told_and_said_once() -> None:
    """The listener is notified, the store gets the member; the same member again changes nothing."""
    here = Watched()
    assert here.generation("g") == 0
    here.join("g", member("a"))
    here.join("g", member("a"))
    assert (here.told, here.wakes, here.unpublished) == (["g"], 1, {A: member("a")})
    here.join("g", dataclasses.replace(member("a"), room="another"))
    assert here.members("g")["a"].room == "another"
    assert here.told == ["g", "g"]


def test_a_join_takes_the_place_that_another_snode_had() -> None:
    """A client that comes here from another snode is here alone, also when it leaves again."""
    here = Watched()
    here.apply_stored(A, 5, member("a", "there"))
    here.apply_stored(("other", "a"), 6, member("a", "there"))
    here.join("g", member("a"))
    assert here.members("g")["a"].incarnation == "here"
    here.leave("g", "a", "a at here")
    assert dict(here.members("g")) == {}
    assert list(here.members("other")) == ["a"]


def test_a_departure_names_its_session_and_leaves_the_others() -> None:
    """Only the session that has the place can leave it; the store is sent the session that left, until it has it."""
    here = Watched()
    for name in ("a", "b"):
        here.join("g", member(name))
        here.on_published(("g", name), member(name), 3)
    here.told.clear()
    here.leave("g", "a", "another session")
    here.leave("g", "nobody", "a at here")
    here.leave("nowhere", "a", "a at here")
    assert (here.told, here.unpublished) == ([], {})
    here.leave("g", "a", "a at here")
    assert (here.told, here.unpublished) == (["g"], {A: "a at here"})
    assert list(here.members("g")) == ["b"]
    assert [key for key, _ in here.own_members()] == [B]
    here.on_published(A, "a at here", 4)
    assert here.unpublished == {}
    here.leave("g", "b", "b at here")
    assert list(here.groups()) == []


def test_all_snodes_list_the_groups_of_a_client_alike() -> None:
    """In any order of arrival, because operators read that list."""
    here, there = Watched(), SharedMembership("there", VirtualClock())
    for number, group in enumerate("bca", 1):
        here.join(group, member("x"))
        there.apply_stored(("cab"[number - 1], "x"), number, member("x"))
    assert list(here.groups()) == list(there.groups()) == ["a", "b", "c"]


def test_members_are_put_together_by_changes_and_not_by_questions() -> None:
    """Between two changes every query has the same answer, without work."""
    here = Watched()
    here.join("g", member("a"))
    assert here.members("g") is here.members("g")


def test_an_older_answer_does_not_end_a_newer_word() -> None:
    """An acceptance counts for that record alone, and its highest number is stored."""
    here = Watched()
    here.join("g", member("a"))
    here.join("g", member("a", session="newer"))
    here.on_published(A, member("a"), 9)
    assert here.unpublished == {A: member("a", session="newer")}
    here.on_published(A, member("a", session="newer"), 4)
    here.apply_stored(A, 9, member("a", "there"))
    assert (here.unpublished, here.members("g")["a"].incarnation) == ({}, "here")
    here.on_published(B, member("b"), 1)
    assert here.unpublished == {}


def test_a_number_that_is_known_is_no_news() -> None:
    """The same record twice changes nothing, and notifies no listener."""
    here = Watched()
    here.apply_stored(A, 5, member("a", "there"))
    here.apply_stored(A, 5, member("a", "elsewhere"))
    assert here.members("g")["a"].incarnation == "there"
    here.apply_stored(A, 6, member("a", "there"))
    assert here.told == ["g"]
    here.apply_stored(A, 7, None)
    assert here.told == ["g", "g"]
    here.apply_stored(A, 8, None)
    assert here.told == ["g", "g"]


def test_our_own_word_comes_back_and_means_nothing() -> None:
    """An own member in the store stays ours while it is here, and is removed from the store when it is not."""
    here = Watched()
    here.join("g", member("a"))
    here.on_published(A, member("a"), 1)
    here.apply_stored(A, 2, member("a"))
    assert (here.unpublished, list(here.members("g"))) == ({}, ["a"])
    here.apply_stored(("never", "a"), 3, member("a"))
    assert here.unpublished == {("never", "a"): "a at here"}


def test_a_reading_says_what_the_store_has_lost_and_no_more() -> None:
    """Own members that the store has, that changed since, or that are pending anyway are not written again."""
    here = Watched()
    for name in ("same", "lost", "other", "newer", "saying"):
        here.join("g", member(name))
        if name != "saying":
            here.on_published(("g", name), member(name), 10)
    here.begin_reading("g")
    here.on_published(("g", "newer"), member("newer"), 11)
    changed = StoredMember(10, dataclasses.replace(member("other"), room="another"))
    saying = here.unpublished[("g", "saying")]
    here.wakes = 0
    here.apply_reading("g", {"same": StoredMember(10, member("same")), "other": changed})
    here.finish_reading("g")
    assert set(here.unpublished) == {("g", "lost"), ("g", "other"), ("g", "saying")}
    assert here.unpublished[("g", "saying")] is saying
    assert here.wakes == 2


async def test_a_reading_takes_others_away_by_name_and_tells_their_group() -> None:
    """Members that it lacks are removed, with their numbers, so that their next record counts with any number."""
    here = Watched()
    await here.follow("g")
    here.apply_stored(A, 7, member("a", "there"))
    here.told.clear()
    for _ in range(2):  # the first reading of a group is told, whatever it finds
        here.begin_reading("g")
        here.finish_reading("g")
    assert (here.told, dict(here.members("g"))) == (["g", "g"], {})
    here.apply_stored(A, 1, member("a", "there"))
    assert list(here.members("g")) == ["a"]


async def test_a_reading_is_older_than_what_was_heard_meanwhile() -> None:
    """A record received since the read began counts more."""
    here = Watched()
    await here.follow("g")
    here.on_record(A, 1, member("a", "there"))
    here.begin_reading("g")
    here.on_record(A, 5, member("a", "elsewhere"))
    here.apply_reading("g", {"a": StoredMember(1, member("a", "there"))})
    here.finish_reading("g")
    assert here.members("g")["a"].incarnation == "elsewhere"
    here.begin_reading("g")
    here.apply_reading("g", {"a": StoredMember(2, member("a", "there"))})
    here.finish_reading("g")
    assert here.members("g")["a"].incarnation == "there"


def test_a_dead_snodes_member_is_dropped_by_its_session() -> None:
    """Another session of the same client stays; an unknown group is no error."""
    here = Watched()
    here.apply_stored(A, 1, member("a", "gone"))
    here.told.clear()
    here.remove_dead(A, "another session")
    here.remove_dead(("nowhere", "a"), "a at gone")
    assert here.told == []
    here.remove_dead(A, "a at gone")
    assert (here.told, dict(here.members("g"))) == (["g"], {})


def test_generations_follow_the_clock_and_never_stand_still() -> None:
    """Each change has a higher number than the one before, even within a millisecond."""
    clock = VirtualClock()
    local = Membership(clock)
    local.join("g", member("a"))
    first = local.generation("g")
    assert first == max(clock.now_ms(), 1)
    local.join("g", member("b"))
    assert local.generation("g") == first + 1
    assert list(local.groups()) == ["g"]
    local.leave("g", "a", "a at here")
    assert list(local.members("g")) == ["b"]
    assert local.generation("g") == first + 2
    local.leave("g", "b", "b at here")
    assert (list(local.groups()), local.generation("g")) == ([], 0)


def test_the_text_of_a_member_is_read_by_all_snodes() -> None:
    """Without a user older snodes read it too; a newer format is refused by name. It is as short as possible."""
    assert '"user"' not in member("a").encode()
    one = dataclasses.replace(member("a"), user="u", strategy=AllocationStrategy.CONFIG)
    assert '"user":"u"' in one.encode()
    assert " " not in member("a", session="s").encode()
    assert decode_member(one.encode()) == one
    for text in ('{"client_id":"a"}', one.encode().replace('"format":1', '"format":2')):
        with pytest.raises(Unsupported, match=r"^a member of a group was written by a newer snode; upgrade this one$"):
            decode_member(text)


def test_a_group_member_with_a_strategy_of_a_newer_snode_is_kept() -> None:
    """It has the default strategy. Without the record, its queues would be assigned to other group members."""
    one = dataclasses.replace(member("a"), strategy=AllocationStrategy.CONFIG)
    text = one.encode().replace('"strategy":4', '"strategy":77')
    assert decode_member(text) == dataclasses.replace(one, strategy=AllocationStrategy.AVERAGELY)


def test_an_older_word_about_a_topic_is_passed_over() -> None:
    """Versions are compared topic by topic; one without a version counts."""
    known = [Subscription("t", "old", version=5), Subscription("gone", version=1)]
    assert merge_subscriptions(known, [Subscription("t", "late", version=4)]) == (known[0],)
    assert merge_subscriptions(known, [Subscription("t", "same", version=5)]) == (Subscription("t", "same", version=5),)
    assert merge_subscriptions(known, [Subscription("t", "none")]) == (Subscription("t", "none"),)
    assert merge_subscriptions(known, [Subscription("z"), Subscription("b")]) == (Subscription("b"), Subscription("z"))
    assert (
        merge_subscriptions([Subscription("t", version=1)], [Subscription("t", "one", version=1)])[0].tag_expression
        == "one"
    )
    assert (
        merge_subscriptions([Subscription("t", "two", version=2)], [Subscription("t", version=1)])[0].tag_expression
        == "two"
    )


def test_who_shares_is_sorted() -> None:
    """Those that are active and have no queues of their own, by client id."""
    quiet = dataclasses.replace(member("q"), active=False)
    loud = dataclasses.replace(member("l"), broadcast=True)
    assert assignable_client_ids({"b": member("b"), "q": quiet, "a": member("a"), "l": loud}) == ["a", "b"]


@pytest.mark.parametrize(
    ("newest", "acknowledged", "since_s", "slow"),
    [(1_125, 100, 0.0, True), (1_124, 100, 0.0, False), (1_125, 100, 0.1, False), (9_999, None, 0.0, False)],
)
def test_a_member_is_slow_beyond_both_limits(newest: int, acknowledged: int | None, since_s: float, slow: bool) -> None:
    """More than 1,024 messages ahead and nothing acknowledged for 10 seconds."""
    rule = SlowConsumerRule()
    how = {"newest_offset": newest, "acknowledged_offset": acknowledged, "now_s": 10.0}
    assert rule.is_slow(**how, waiting_since_s=since_s) is slow  # type: ignore[arg-type]
    assert not rule.is_slow(**how, waiting_since_s=None)  # type: ignore[arg-type]


def test_a_topic_without_queues_gives_nobody_any() -> None:
    """Also to members that subscribe to everything."""
    loud = dataclasses.replace(member("l"), subscriptions=(Subscription("none"),), broadcast=True)
    one = dataclasses.replace(member("a"), subscriptions=(Subscription("none"),))
    assert assign({"l": loud, "a": one}, {}) == {"l": [], "a": []}
