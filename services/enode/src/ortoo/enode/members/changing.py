"""How members come and go: one at a time, each change a frame of the log. A joiner learns first and votes then."""

from dataclasses import replace

from ortoo.enode.members.driver import AddLearner, AppendMembers, Refused, Remove
from ortoo.enode.members.identity import Configuration, MemberId
from ortoo.enode.members.member import Member, Outcome
from ortoo.enode.members.roles import Leader


def on_add(member: Member, event: AddLearner) -> Outcome:
    """Let it have the log. It becomes a voter by itself."""
    members = member.rules.in_force(member.log)
    if event.member in members.everybody:
        return member, (Refused(f"member {event.member.number} with this disk is there already"),)
    if any(event.member.number == one.number for one in members.learners):
        return member, (Refused(f"member {event.member.number} joins already with another disk: remove that first"),)
    return _change(member, Configuration(members.voters, (*members.learners, event.member)))


def on_remove(member: Member, event: Remove, now_s: float) -> Outcome:
    """Let it have nothing more, and count for nothing; unless those who are left could not decide that without it.

    Nobody would lead any more then, not even with this member back: whoever has the frame counts without it.
    """
    members = member.rules.in_force(member.log)
    if event.member not in members.everybody:
        return member, (Refused(f"member {event.member.number} with that disk is not there"),)
    if event.member == member.me.member:
        return member, (Refused(f"member {event.member.number} leads: hand over to another first"),)
    after = Configuration(_without(members.voters, event.member), _without(members.learners, event.member))
    answering = member.answering(after, now_s) if isinstance(member.role, Leader) else after.voters
    if 1 + len(answering) < after.majority:
        away = ", ".join(str(one.number) for one in after.voters if one not in (member.me.member, *answering))
        return member, (Refused(f"without it too few are left that answer: start member {away}, or add one first"),)
    return _change(member, after)


def _without(members: tuple[MemberId, ...], gone: MemberId) -> tuple[MemberId, ...]:
    return tuple(one for one in members if one != gone)


def _change(member: Member, configuration: Configuration) -> Outcome:
    if not isinstance(member.role, Leader):
        return member, (Refused("this member does not lead"),)
    if member.role.successor is not None:
        return member, (Refused("this leader hands over: ask the next one"),)
    if reason := member.rules.change_refusal(member.role, member.log):
        return member, (Refused(reason),)
    return member, (AppendMembers(configuration),)


def with_new_voters(member: Member) -> Outcome:
    """A learner that has what is committed becomes a voter, as soon as members may change.

    It has answered a heartbeat by then: a voter that was never heard would count as one that is silent.
    """
    role, rules, log = member.role, member.rules, member.log
    assert isinstance(role, Leader)
    members = rules.in_force(log)
    if not members.learners or role.successor is not None or rules.change_refusal(role, log):
        return member, ()
    for learner in members.learners:
        stream = role.stream_of(learner)
        is_heard = role.heard_of(learner).round > 0
        if is_heard and stream is not None and stream.is_matched and rules.is_caught_up(log, stream):
            after = Configuration((*members.voters, learner), _without(members.learners, learner))
            return member, (AppendMembers(after),)
    return member, ()


def without_strangers(member: Member) -> Member:
    """The leader forgets the streams of those who are no members any more."""
    role = member.role
    assert isinstance(role, Leader)
    everybody = member.rules.in_force(member.log).everybody
    streams = tuple(one for one in role.streams if one.follower.member in everybody)
    heard = tuple(one for one in role.heard if one.member in everybody)
    return replace(member, role=replace(role, streams=streams, heard=heard))
