"""Reports of the replicas of one enode, for tests."""

from typing import Any

from ortoo.namesrv.decisions.replicas import LogTail, MemberId, MemberReport, Members, MemberSet


def ids(*numbers: int) -> tuple[MemberId, ...]:
    """Replicas with one disk each."""
    return tuple(MemberId(number, f"disk-{number}") for number in numbers)


def report(
    number: int, *, voters: int | tuple[MemberId, ...] = 3, end: int = 100, tail_epoch: int = 1, **said: Any
) -> MemberReport:
    """A report of a replica that can become leader."""
    return MemberReport(
        **{
            "enode": "e",
            "set_id": "set",
            "member": MemberId(number, f"disk-{number}"),
            "incarnation": 1,
            "address": f"h{number}:1",
            "member_address": f"h{number}:2",
            "epoch": tail_epoch,
            "tail": LogTail(tail_epoch, end),
            "is_electable": True,
            "voters": voters if isinstance(voters, tuple) else ids(*range(1, voters + 1)),
            **said,
        }
    )


def said(*reports: MemberReport, now_s: float = 0.0, members: Members | None = None) -> MemberSet:
    """The set after these reports, all received at one time."""
    members = members or Members(lease_s=3.0)
    for one in reports:
        members.put(one, now_s)
    return members.sets["e"]
