"""Elections. Any process may propose a leader at any time; only votes of a majority of disks elect one."""

from dataclasses import replace

from ortoo.enode.replication.protocol.events import AppendEpoch, LeaderSilent, Proposed, Send, Suggest
from ortoo.enode.replication.protocol.replica import Member
from ortoo.enode.replication.protocol.messages import HandedOver, Newer, Promise, PromiseAsk, Released
from ortoo.enode.replication.protocol.roles import Candidate, Follower, Idle, Leader, Voter


def on_proposed(member: Member, event: Proposed | HandedOver, now_s: float) -> None:
    """Stand for election if this replica may. It votes for itself first, like any other voter."""
    me, rules, log = member.me, member.rules, member.log
    is_mine = event.leader == me.member and rules.counts_vote(rules.in_force(log), me)
    stands_already = isinstance(member.role, Candidate | Leader) and event.epoch == member.reign.epoch
    is_able = rules.is_electable(log, member.reign) and rules.may_write(log)
    if not is_mine or stands_already or not is_able:
        return
    if rules.may_promise(member.reign, event.epoch, me) and _may_break_silence(member, now_s):
        member.promise(replace(member.reign, epoch=event.epoch, leader=me), Candidate())


def on_promise_ask(member: Member, ask: PromiseAsk, now_s: float) -> None:
    """Vote, saving the vote before it is sent; or repeat an earlier vote."""
    reign = member.reign
    if not member.rules.may_promise(reign, ask.epoch, ask.candidate):
        if ask.epoch < reign.epoch:
            member.want(Send(ask.candidate.member, Newer(reign.epoch)))
    elif ask.epoch == reign.epoch and ask.candidate == reign.leader:
        if member.is_saved and not isinstance(member.role, Candidate | Leader | Follower):
            member.role = Voter()
            say_promise(member)
    elif _may_break_silence(member, now_s):
        member.promise(replace(reign, epoch=ask.epoch, leader=ask.candidate), Voter())


def _may_break_silence(member: Member, now_s: float) -> bool:
    """Whether a vote may be given now. A leader may: by its vote for another it stops reading."""
    return isinstance(member.role, Leader) or member.rules.may_break_silence(now_s, member.lease_until_s)


def on_saved_candidate(member: Member, now_s: float) -> None:
    """The candidate's own vote is on disk: count it, and request the others' votes."""
    _ask_others(member)
    on_promise(member, Promise(member.reign.epoch, member.me, member.log.tail, is_electable=True), now_s)


def _ask_others(member: Member) -> None:
    ask = PromiseAsk(member.reign.epoch, member.me)
    voters = member.rules.in_force(member.log).voters
    member.want(*(Send(one, ask) for one in voters if one != member.me.member))


def say_promise(member: Member) -> None:
    """Send the vote, which is on disk."""
    reign, rules, log = member.reign, member.rules, member.log
    tail, is_electable = rules.claimed_tail(log, reign), rules.is_electable(log, reign)
    member.want(Send(reign.leader.member, Promise(reign.epoch, member.me, tail, is_electable)))


def on_promise(member: Member, promise: Promise, now_s: float) -> None:
    """Count a vote; become leader with a majority.

    A voter whose log is ahead may have committed frames that this replica lacks. Its vote does not count, and it is
    proposed as leader if it is electable.
    """
    role, rules, log = member.role, member.rules, member.log
    if not isinstance(role, Candidate) or promise.epoch != member.reign.epoch or not member.is_saved:
        return
    voters = rules.in_force(log)
    if not rules.counts_vote(voters, promise.voter):
        return
    if promise.voter != member.me and rules.is_ahead(promise.tail, log.tail):
        if promise.is_electable:
            member.turn(Idle())
            member.want(Suggest(promise.voter.member, promise.epoch))
        return
    kept = tuple(one for one in role.promises if one.voter.member != promise.voter.member)
    promises = (*kept, promise)
    if rules.is_enough(voters, len(promises)):
        member.role = Leader(since_s=now_s, rounds_before=member.rounds_begun)
        member.want(AppendEpoch(promise.epoch))
    else:
        member.role = Candidate(promises)


def on_newer(member: Member, news: Newer) -> None:
    """A replica voted in a higher epoch and cannot follow this leader: request an election above that epoch."""
    if news.epoch <= member.reign.epoch or not isinstance(member.role, Candidate | Leader):
        return
    if isinstance(member.role, Candidate):
        member.turn(Idle())
    member.want(Suggest(member.me.member, news.epoch))


def on_released(member: Member, message: Released) -> None:
    """End the lease: the leader whose heartbeats it came from no longer reads."""
    if message.leader == member.reign.leader and message.epoch == member.reign.epoch:
        member.lease_until_s = 0.0


def on_leaderless_tick(member: Member, now_s: float) -> None:
    """A sole voter stands for election; any other replica reports that it hears no leader."""
    limits = member.limits
    is_alone = member.rules.in_force(member.log).voters == (member.me.member,)
    if is_alone and not isinstance(member.role, Follower | Candidate):
        on_proposed(member, Proposed(member.reign.epoch + 1, member.me.member), now_s)
    elif now_s - member.heard_s >= limits.silence_s:
        if isinstance(member.role, Candidate) and member.is_saved:
            _ask_others(member)
        member.heard_s = now_s - limits.silence_s + limits.retry_s
        member.want(LeaderSilent())
