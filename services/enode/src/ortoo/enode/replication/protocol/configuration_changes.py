"""Membership changes: one at a time, each a frame of the log. A new replica is a learner first, then a voter."""

from dataclasses import replace

from ortoo.enode.replication.protocol.events import AddLearner, AppendMembers, Refused, Remove
from ortoo.enode.replication.protocol.identity import Configuration, MemberId
from ortoo.enode.replication.protocol.replica import Member
from ortoo.enode.replication.protocol.roles import Leader


def on_add(member: Member, event: AddLearner) -> None:
    """Add a learner, which gets the log. It becomes a voter automatically."""
    members = member.rules.in_force(member.log)
    if event.member in members.everybody:
        member.want(Refused(f"replica {event.member.number} with this disk is in the set already"))
    elif any(event.member.number == one.number for one in members.learners):
        member.want(Refused(f"replica {event.member.number} joins already with another disk: remove that first"))
    else:
        _change(member, Configuration(members.voters, (*members.learners, event.member)))


def on_remove(member: Member, event: Remove, now_s: float) -> None:
    """Remove a replica, unless the remaining voters that answer are no majority of the new set.

    Otherwise no replica could lead any more, even if the removed one returned: replicas with the frame do not count it.
    """
    members = member.rules.in_force(member.log)
    after = Configuration(_without(members.voters, event.member), _without(members.learners, event.member))
    answering = member.answering(after, now_s) if isinstance(member.role, Leader) else after.voters
    if event.member not in members.everybody:
        member.want(Refused(f"replica {event.member.number} with that disk is not in the set"))
    elif event.member == member.me.member:
        member.want(Refused(f"replica {event.member.number} leads: transfer leadership to another first"))
    elif 1 + len(answering) < after.majority:
        away = ", ".join(str(one.number) for one in after.voters if one not in (member.me.member, *answering))
        member.want(Refused(f"without it too few replicas answer: start replica {away}, or add one first"))
    else:
        _change(member, after)


def _without(members: tuple[MemberId, ...], gone: MemberId) -> tuple[MemberId, ...]:
    return tuple(one for one in members if one != gone)


def _change(member: Member, configuration: Configuration) -> None:
    if not isinstance(member.role, Leader):
        reason = "this replica does not lead"
    elif member.role.successor is not None:
        reason = "this leader is transferring leadership: ask the next one"
    else:
        reason = member.rules.change_refusal(member.role, member.log)
    member.want(Refused(reason) if reason else AppendMembers(configuration))


def make_new_voters(member: Member) -> None:
    """Make a voter of a learner that has the committed log, as soon as a change is allowed.

    It must have answered a heartbeat: a voter that never answered would count as silent.
    """
    role, rules, log = member.leading, member.rules, member.log
    members = rules.in_force(log)
    if not members.learners or role.successor is not None or rules.change_refusal(role, log):
        return
    for learner in members.learners:
        stream = role.stream_of(learner)
        is_heard = role.heard_of(learner).round > 0
        if is_heard and stream is not None and stream.is_matched and rules.is_caught_up(log, stream):
            after = Configuration((*members.voters, learner), _without(members.learners, learner))
            member.want(AppendMembers(after))
            return


def forget_strangers(member: Member) -> None:
    """Drop the leader's streams to replicas that were removed."""
    role, everybody = member.leading, member.rules.in_force(member.log).everybody
    streams = tuple(one for one in role.streams if one.follower.member in everybody)
    heard = tuple(one for one in role.heard if one.member in everybody)
    member.role = replace(role, streams=streams, heard=heard)
