"""Reports of the replicas of one enode, for tests."""

from typing import Any

from ortoo.namesrv.decisions.replicas import LogTail, ReplicaId, ReplicaReport, ReplicaSet, ReplicaSets


def ids(*numbers: int) -> tuple[ReplicaId, ...]:
    """Replicas with one disk each."""
    return tuple(ReplicaId(number, f"disk-{number}") for number in numbers)


def report(
    number: int, *, voters: int | tuple[ReplicaId, ...] = 3, end: int = 100, tail_epoch: int = 1, **said: Any
) -> ReplicaReport:
    """A report of a replica that can become leader."""
    return ReplicaReport(
        **{
            "enode": "e",
            "set_id": "set",
            "replica": ReplicaId(number, f"disk-{number}"),
            "incarnation": 1,
            "address": f"h{number}:1",
            "replica_address": f"h{number}:2",
            "epoch": tail_epoch,
            "tail": LogTail(tail_epoch, end),
            "is_electable": True,
            "voters": voters if isinstance(voters, tuple) else ids(*range(1, voters + 1)),
            **said,
        }
    )


def said(*reports: ReplicaReport, now_s: float = 0.0, members: ReplicaSets | None = None) -> ReplicaSet:
    """The set after these reports, all received at one time."""
    members = members or ReplicaSets(lease_s=3.0)
    for one in reports:
        members.update(one, now_s)
    return members.sets["e"]
