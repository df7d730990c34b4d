"""How members come and go: one at a time, each change a frame of the log. A joiner learns first and votes then."""

from dataclasses import replace

from ortoo.enode.members.driver import AddLearner, AppendMembers, Refused, Remove
from ortoo.enode.members.identity import Configuration, MemberId
from ortoo.enode.members.member import Member
from ortoo.enode.members.roles import Leader


def on_add(member: Member, event: AddLearner) -> None:
    """Let it have the log. It becomes a voter by itself."""
    members = member.rules.in_force(member.log)
    if event.member in members.everybody:
        member.want(Refused(f"member {event.member.number} with this disk is there already"))
    elif any(event.member.number == one.number for one in members.learners):
        member.want(Refused(f"member {event.member.number} joins already with another disk: remove that first"))
    else:
        _change(member, Configuration(members.voters, (*members.learners, event.member)))


def on_remove(member: Member, event: Remove, now_s: float) -> None:
    """Let it have nothing more, and count for nothing; unless those who are left could not decide that without it.

    Nobody would lead any more then, not even with this member back: whoever has the frame counts without it.
    """
    members = member.rules.in_force(member.log)
    after = Configuration(_without(members.voters, event.member), _without(members.learners, event.member))
    answering = member.answering(after, now_s) if isinstance(member.role, Leader) else after.voters
    if event.member not in members.everybody:
        member.want(Refused(f"member {event.member.number} with that disk is not there"))
    elif event.member == member.me.member:
        member.want(Refused(f"member {event.member.number} leads: hand over to another first"))
    elif 1 + len(answering) < after.majority:
        away = ", ".join(str(one.number) for one in after.voters if one not in (member.me.member, *answering))
        member.want(Refused(f"without it too few are left that answer: start member {away}, or add one first"))
    else:
        _change(member, after)


def _without(members: tuple[MemberId, ...], gone: MemberId) -> tuple[MemberId, ...]:
    return tuple(one for one in members if one != gone)


def _change(member: Member, configuration: Configuration) -> None:
    if not isinstance(member.role, Leader):
        reason = "this member does not lead"
    elif member.role.successor is not None:
        reason = "this leader hands over: ask the next one"
    else:
        reason = member.rules.change_refusal(member.role, member.log)
    member.want(Refused(reason) if reason else AppendMembers(configuration))


def make_new_voters(member: Member) -> None:
    """A learner that has what is committed becomes a voter, as soon as members may change.

    It has answered a heartbeat by then: a voter that was never heard would count as one that is silent.
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
    """The leader forgets the streams of those who are no members any more."""
    role, everybody = member.leading, member.rules.in_force(member.log).everybody
    streams = tuple(one for one in role.streams if one.follower.member in everybody)
    heard = tuple(one for one in role.heard if one.member in everybody)
    member.role = replace(role, streams=streams, heard=heard)
