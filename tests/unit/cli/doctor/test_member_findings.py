"""The doctor's findings about the replicas of an enode."""

from dataclasses import replace

from ortoo.client import ClusterInfo, ProcessInfo, ReplicaInfo, ReplicaSetInfo
from ortoo.client.admin.doctor.findings import DoctorFinding, Facts, cluster_findings

WELL = ReplicaSetInfo(
    "e",
    "set",
    leader=1,
    proposed=1,
    proposed_epoch=3,
    majority=2,
    replicas=tuple(
        ReplicaInfo(number, f"disk-{number}", "leading" if number == 1 else "following", epoch=3)
        for number in (1, 2, 3)
    ),
)


def findings(found: ReplicaSetInfo) -> dict[str, DoctorFinding]:
    """By name."""
    cluster = ClusterInfo((ProcessInfo("e", "h:1", alive=True),), (), 1)
    return {one.name: one for one in cluster_findings(Facts(cluster, 0, replica_sets=(found,)))}


def with_states(found: ReplicaSetInfo, *states: str) -> ReplicaSetInfo:
    """Its replicas, in these states."""
    members = tuple(replace(one, state=state) for one, state in zip(found.replicas, states, strict=True))
    return replace(found, replicas=members)


def test_all_is_well() -> None:
    """A complete set with a leader has no finding."""
    assert findings(WELL) == {}


def test_a_member_is_missing() -> None:
    """One missing replica is not serious and has a remedy; without a quorum it is serious."""
    found = findings(with_states(WELL, "leading", "following", "away"))
    assert list(found) == ["replica unavailable"]
    assert not found["replica unavailable"].critical
    remedy = found["replica unavailable"].remedy
    assert 0 < remedy.index("ortoo enode remove e 3") < remedy.index("ortoo enode add e 3")


def test_nobody_leads() -> None:
    """Below the quorum start the others; with a quorum wait, check, or elect."""
    leaderless = replace(WELL, leader=None)
    few = findings(with_states(leaderless, "away", "away", "following"))
    assert few["no leader"].critical
    assert "start the others with their volumes: replicas 1, 2" in few["no leader"].remedy
    assert few["replica unavailable"].critical
    assert "ortoo enode add" not in few["replica unavailable"].remedy  # without a leader it is refused
    assert "until 2 replicas run" in few["replica unavailable"].remedy
    enough = findings(with_states(leaderless, "away", "following", "following"))
    assert "ortoo enode elect e" in enough["no leader"].remedy


def test_a_follower_has_not_heard_of_the_epoch() -> None:
    """A follower with an older epoch may be unreachable for its leader."""
    first, second, third = WELL.replicas
    found = findings(replace(WELL, replicas=(first, second, replace(third, epoch=2))))
    assert list(found) == ["stale epoch"]
    assert "replicas 3" in found["stale epoch"].observed


def test_an_empty_disk_waits() -> None:
    """A replica with an empty disk that was not added yet."""
    waiting = ReplicaInfo(3, "new", "waiting")
    found = findings(replace(WELL, replicas=(*WELL.replicas, waiting)))
    assert found["empty disk"].remedy.startswith("ortoo enode add e 3")
