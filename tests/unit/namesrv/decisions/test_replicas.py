"""The name server's knowledge of the replicas of an enode."""

import dataclasses
from typing import Any

import pytest

from ortoo.common.errors import Conflict, Fenced, Invalid
from ortoo.namesrv.decisions.replicas import REPLICAS_MAX, ReplicaId, ReplicaSets, ReplicaState
from tests.unit.namesrv.decisions.replicas_of_one import ids, report, said


def states(members: ReplicaSets) -> dict[int, ReplicaState]:
    """The state of each replica."""
    return {one.replica.number: one.state for one in members.sets["e"].statuses()}


def test_states_are_those_of_the_log_with_the_last_word() -> None:
    """The most recent log names voters and learners. A replica without reports is away, and an empty disk waits."""
    members = ReplicaSets(lease_s=3.0)
    newest = report(1, tail_epoch=2, is_leading=True, learners=ids(4), epoch=2)
    said(newest, report(2, voters=1), report(4), members=members)
    said(report(5, set_id="", voters=0), members=members)
    assert states(members) == {
        1: ReplicaState.LEADING,
        2: ReplicaState.FOLLOWING,
        3: ReplicaState.AWAY,
        4: ReplicaState.LEARNING,
        5: ReplicaState.WAITING,
    }
    assert members.sets["e"].missing_voters() == [ReplicaId(3, "disk-3")]


def test_an_empty_disk_waits_until_a_log_names_it() -> None:
    """Also if it has joined the set, but could not be added to the log: an operator retries."""
    members = ReplicaSets(lease_s=3.0)
    said(report(1, is_leading=True), report(2), report(3), report(4, voters=0, end=0), members=members)
    assert states(members)[4] is ReplicaState.WAITING
    said(report(1, is_leading=True, end=110, learners=ids(4)), members=members)
    assert states(members)[4] is ReplicaState.LEARNING


def test_a_learner_without_a_frame_does_not_hide_who_votes() -> None:
    """While every reporting voter is damaged, their configuration is the best available."""
    members = ReplicaSets(lease_s=3.0)
    said(report(1, is_electable=False), report(2, is_electable=False), report(4, voters=0, end=0), members=members)
    assert members.sets["e"].missing_voters() == [ReplicaId(3, "disk-3")]


def test_reports_hold_for_a_lease() -> None:
    """A replica without reports for the lease is away. It is reported once, and its address is kept."""
    members = ReplicaSets(lease_s=3.0)
    said(report(1), report(2), report(3), members=members)
    said(report(1), report(2), now_s=2.0, members=members)
    assert members.expire(2.9) == []
    assert members.expire(3.0) == [members.sets["e"]]
    assert states(members)[3] is ReplicaState.AWAY
    assert members.expire(3.1) == []
    assert [one.address for one in members.sets["e"].route_entries()] == ["h1:1", "h2:1", "h3:1"]


def test_an_empty_disk_lets_nobody_be_forgotten() -> None:
    """It belongs to the set, but names no replica; operators need the last reports of the others."""
    members = ReplicaSets(lease_s=3.0)
    said(report(1), report(2), report(3, end=200), members=members)
    said(report(4, voters=0, end=0), now_s=3.0, members=members)
    members.expire(3.0)
    [last] = [one.reported for one in said(report(1), now_s=4.0, members=members).statuses() if one.replica.number == 3]
    assert last is not None
    assert last.report.tail.position == 200


def test_a_last_report_ends_the_lease_at_once() -> None:
    """A replica that leaves is away at once."""
    members = ReplicaSets(lease_s=3.0)
    said(report(1), report(2, is_leaving=True), members=members)
    assert states(members)[2] is ReplicaState.AWAY


def test_disks_that_nobody_names_are_forgotten() -> None:
    """An empty disk that stops waiting is forgotten, so that replaced disks do not accumulate."""
    members = ReplicaSets(lease_s=3.0)
    said(report(1), report(9, set_id="", voters=0), members=members)
    said(report(1), now_s=3.0, members=members)
    members.expire(3.0)
    assert 9 not in states(members)
    assert ReplicaId(9, "disk-9") not in members.sets["e"].reports


def test_an_earlier_start_is_fenced() -> None:
    """Of two processes of one disk the later one is accepted."""
    members = ReplicaSets(lease_s=3.0)
    said(report(1, incarnation=2), members=members)
    with pytest.raises(Fenced, match="a later start"):
        members.update(report(1, incarnation=1), 0.0)


@pytest.mark.parametrize("incarnation", [(3 << 32) + 5, (3 << 32) + 9, (2 << 32) + 9, 7])
def test_a_disk_that_was_put_back_from_an_older_copy_is_named(incarnation: int) -> None:
    """It repeats the count of a known start with another random part; the next start is accepted."""
    members = ReplicaSets(lease_s=3.0)
    said(report(1, incarnation=(3 << 32) + 7), members=members)
    with pytest.raises(Fenced, match="restored from an older copy"):
        members.update(report(1, incarnation=incarnation), 1.0)
    members.update(report(1, incarnation=(4 << 32) + 1), 1.0)


@pytest.mark.parametrize(("start", "may_be_repeated"), [(3, True), (2, False)])
def test_only_a_start_whose_number_was_used_twice_is_told_to_restart(start: int, may_be_repeated: bool) -> None:
    """An earlier version could use a number twice, and the disk has all messages. A smaller number is an older copy."""
    members = ReplicaSets(lease_s=3.0)
    said(report(1, incarnation=(3 << 32) + 7), members=members)
    with pytest.raises(Fenced) as refused:
        members.update(report(1, incarnation=(start << 32) + 9), 1.0)
    assert ("keep the disk and restart the process once" in refused.value.message) is may_be_repeated
    assert "empty its folder, and add it as a new replica" in refused.value.message


def test_two_copies_of_a_disk_that_are_started_are_named() -> None:
    """Both have the same count of starts, each with another random part."""
    members = ReplicaSets(lease_s=3.0)
    said(report(1, incarnation=(3 << 32) + 7), members=members)
    copy = dataclasses.replace(report(1, incarnation=(3 << 32) + 9), replica_address="clone:2", address="clone:1")
    with pytest.raises(Conflict, match="two processes have copies of the disk of replica 1"):
        members.update(copy, 2.0)


def test_a_copy_of_a_disk_beside_its_origin_is_named() -> None:
    """G1: a cloned machine has the replica and incarnation of its origin, and a majority would count them as one disk.

    The first one stays. A restarted copy has another incarnation, at any address.
    """
    members = ReplicaSets(lease_s=3.0)
    said(report(1), report(2), report(3), members=members)
    copy = dataclasses.replace(report(2), replica_address="clone:2", address="clone:1")
    with pytest.raises(Conflict, match="two processes have copies of the disk of replica 2"):
        members.update(copy, 2.0)
    assert said(report(2), now_s=2.0, members=members).reports[report(2).replica].report == report(2)
    members.update(dataclasses.replace(copy, incarnation=2), 2.5)
    members.expire(10.0)
    members.update(copy := dataclasses.replace(copy, incarnation=2, address="h:7"), 10.0)
    members.update(dataclasses.replace(copy, is_leaving=True), 11.0)
    members.update(dataclasses.replace(copy, replica_address="moved:1"), 11.0)


def test_another_set_has_to_wait_until_nobody_of_the_first_is_there() -> None:
    """Two enodes with one name are distinguished; a set whose replicas have all stopped frees the name."""
    members = ReplicaSets(lease_s=3.0)
    said(report(1, is_leading=True, epoch=9), members=members)
    with pytest.raises(Conflict, match="another name") as caught:
        members.update(report(1, set_id="other", incarnation=5), 1.0)
    assert caught.value.retry_after_ms == 2000
    members.expire(3.0)
    assert members.update(report(1, set_id="other"), 3.0).set_id == "other"
    assert members.sets["e"].leader() is None


def test_take_overs_are_counted_by_member() -> None:
    """Another replica in a later epoch counts. The same one, or an older leader that still reports, does not."""
    members = ReplicaSets(lease_s=3.0)
    for number, epoch in ((1, 1), (1, 2), (2, 3), (1, 2), (2, 4), (3, 5)):
        said(report(number, is_leading=True, epoch=epoch), members=members)
    assert (members.sets["e"].leader_changes, members.sets["e"].last_leader_epoch) == (2, 5)


@pytest.mark.parametrize(
    ("field", "wrong"),
    [
        ("address", {"address": "nowhere"}),
        ("replica_address", {"replica_address": "h:0"}),
        ("replica.number", {"replica": ReplicaId(0, "d")}),
        ("replica.disk", {"replica": ReplicaId(1, "")}),
        ("voters.disk", {"voters": (ReplicaId(1, "x" * 256),)}),
        ("learners", {"learners": ids(*range(1, REPLICAS_MAX + 2))}),
        ("suggested_leader.number", {"suggested_leader": ReplicaId(0, "d")}),
        ("enode", {"enode": "no name"}),
        ("set_id", {"set_id": "x" * 256}),
    ],
)
def test_nonsense_is_refused_and_changes_nothing(field: str, wrong: dict[str, Any]) -> None:
    """The error names the field, and no replica is registered."""
    members = ReplicaSets(lease_s=3.0)
    with pytest.raises(Invalid) as caught:
        members.update(dataclasses.replace(report(1), **wrong), 0.0)
    assert (caught.value.field, members.sets) == (field, {})
