"""The members of enodes, written: what they are answered, and what operators are shown."""

from ortoo.common.grpc.fields import write
from ortoo.namesrv.decisions.members import MemberSet, MemberState, MemberStatus, Proposal, majority
from ortoo.v1 import member_admin_pb2, member_report_pb2
from ortoo.v1.topic_pb2 import EnodeMemberState


def answer_to(members: MemberSet, proposal: Proposal | None) -> member_report_pb2.ReportMemberResponse:
    """What a member is answered."""
    addresses = [
        write(member_report_pb2.MemberAddress, reported.report) for _, reported in sorted(members.reports.items())
    ]
    return member_report_pb2.ReportMemberResponse(proposal=_proposal_to(proposal), members=addresses)


def members_to(members: MemberSet, proposal: Proposal | None, now_s: float) -> member_admin_pb2.EnodeMembers:
    """An enode's members, for a person."""
    latest, leader = members.configuration(), members.leader()
    end = leader.tail.position if leader else None
    return member_admin_pb2.EnodeMembers(
        enode=members.enode,
        set_id=members.set_id,
        leader=write(member_report_pb2.MemberId, leader.member) if leader else None,
        proposal=_proposal_to(proposal),
        members=[_status_to(one, end, now_s) for one in members.statuses()],
        majority=majority(latest.voters) if latest else 0,
    )


def _status_to(status: MemberStatus, end: int | None, now_s: float) -> member_admin_pb2.MemberStatus:
    member = write(member_report_pb2.MemberId, status.member)
    state = EnodeMemberState.ValueType(status.state)
    if status.reported is None:
        return member_admin_pb2.MemberStatus(member=member, state=state)
    report = status.reported.report
    is_here = status.state not in (MemberState.AWAY, MemberState.WAITING)
    return write(
        member_admin_pb2.MemberStatus,
        report,
        state=state,
        reported_ms_ago=max(0, int((now_s - status.reported.at_s) * 1000)),
        lag_bytes=max(0, end - report.tail.position) if end is not None and is_here else None,
    )


def _proposal_to(proposal: Proposal | None) -> member_report_pb2.Proposal | None:
    return write(member_report_pb2.Proposal, proposal) if proposal else None
