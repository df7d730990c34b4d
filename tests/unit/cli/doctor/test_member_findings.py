"""The doctor's findings about the replicas of an enode."""

from dataclasses import replace

from ortoo.cli.doctor.findings import Facts, Finding, of_cluster
from ortoo.client import ClusterInfo, EnodeMember, EnodeMembers, ProcessInfo

WELL = EnodeMembers(
    "e",
    "set",
    leader=1,
    proposed=1,
    proposed_epoch=3,
    majority=2,
    members=tuple(
        EnodeMember(number, f"disk-{number}", "leading" if number == 1 else "following", epoch=3)
        for number in (1, 2, 3)
    ),
)


def findings(found: EnodeMembers) -> dict[str, Finding]:
    """By name."""
    cluster = ClusterInfo((ProcessInfo("e", "h:1", alive=True),), (), 1)
    return {one.name: one for one in of_cluster(Facts(cluster, 0, enode_members=(found,)))}


def with_states(found: EnodeMembers, *states: str) -> EnodeMembers:
    """Its replicas, in these states."""
    members = tuple(replace(one, state=state) for one, state in zip(found.members, states, strict=True))
    return replace(found, members=members)


def test_all_is_well() -> None:
    """A complete set with a leader has no finding."""
    assert findings(WELL) == {}


def test_a_member_is_missing() -> None:
    """One missing replica is not serious and has a remedy; without a quorum it is serious."""
    found = findings(with_states(WELL, "leading", "following", "away"))
    assert list(found) == ["replica unavailable"]
    assert not found["replica unavailable"].serious
    assert "ortoo enode add e 3" in found["replica unavailable"].cure


def test_nobody_leads() -> None:
    """Below the quorum start the others; with a quorum wait, check, or elect."""
    leaderless = replace(WELL, leader=None)
    few = findings(with_states(leaderless, "away", "away", "following"))
    assert few["no leader"].serious
    assert "start the others with their volumes: replicas 1, 2" in few["no leader"].cure
    assert few["replica unavailable"].serious
    enough = findings(with_states(leaderless, "away", "following", "following"))
    assert "ortoo enode elect e" in enough["no leader"].cure


def test_a_follower_has_not_heard_of_the_epoch() -> None:
    """A follower with an older epoch may be unreachable for its leader."""
    first, second, third = WELL.members
    found = findings(replace(WELL, members=(first, second, replace(third, epoch=2))))
    assert list(found) == ["stale epoch"]
    assert "replicas 3" in found["stale epoch"].seen


def test_an_empty_disk_waits() -> None:
    """A replica with an empty disk that was not added yet."""
    waiting = EnodeMember(3, "new", "waiting")
    found = findings(replace(WELL, members=(*WELL.members, waiting)))
    assert found["empty disk"].cure.startswith("ortoo enode add e 3")
