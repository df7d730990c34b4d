"""How a leader comes to be: proposed by anybody at any time, made by promises of a majority of disks alone."""

from dataclasses import replace

from ortoo.enode.members.driver import Action, AppendEpoch, LeaderSilent, Proposed, Send, Suggest, Tick
from ortoo.enode.members.identity import MemberId
from ortoo.enode.members.member import Member, Outcome, promised, turned
from ortoo.enode.members.messages import HandedOver, Newer, Promise, PromiseAsk, Released
from ortoo.enode.members.roles import Candidate, Follower, Idle, Leader, Voter


def on_proposed(member: Member, event: Proposed | HandedOver, now_s: float) -> Outcome:
    """Stand for election, if this member may: it promises itself first, like any other voter."""
    me, rules, log = member.me, member.rules, member.log
    is_mine = event.leader == me.member and rules.counts_vote(rules.in_force(log), me)
    stands_already = isinstance(member.role, Candidate | Leader) and event.epoch == member.reign.epoch
    is_able = rules.is_electable(log, member.reign) and rules.may_write(log)
    if not is_mine or stands_already or not is_able:
        return member, ()
    if not rules.may_promise(member.reign, event.epoch, me) or not _may_break_silence(member, now_s):
        return member, ()
    return promised(member, replace(member.reign, epoch=event.epoch, leader=me), Candidate())


def on_promise_ask(member: Member, ask: PromiseAsk, now_s: float) -> Outcome:
    """Promise, and write it down before it is said; or say what was promised already."""
    reign, rules = member.reign, member.rules
    if not rules.may_promise(reign, ask.epoch, ask.candidate):
        is_over = ask.epoch < reign.epoch
        return member, (Send(ask.candidate.member, Newer(reign.epoch)),) if is_over else ()
    if ask.epoch == reign.epoch and ask.candidate == reign.leader:
        if isinstance(member.role, Candidate | Leader | Follower) or not member.is_saved:
            return member, ()
        return replace(member, role=Voter()), (_promise_of(member),)
    if not _may_break_silence(member, now_s):
        return member, ()
    return promised(member, replace(reign, epoch=ask.epoch, leader=ask.candidate), Voter())


def _may_break_silence(member: Member, now_s: float) -> bool:
    """A leader may: it reads no more when it promises somebody else."""
    return isinstance(member.role, Leader) or member.rules.may_break_silence(now_s, member.lease_until_s)


def on_saved_candidate(member: Member, now_s: float) -> Outcome:
    """The candidate's own promise is on disk: count it, and ask the others."""
    me, epoch = member.me, member.reign.epoch
    after, actions = on_promise(member, Promise(epoch, me, member.log.tail, is_electable=True), now_s)
    return after, (*(Send(one, PromiseAsk(epoch, me)) for one in others_who_vote(member)), *actions)


def on_saved_voter(member: Member) -> Outcome:
    """The promise is on disk: say it."""
    return member, (_promise_of(member),)


def _promise_of(member: Member) -> Action:
    reign, rules, log = member.reign, member.rules, member.log
    tail, is_electable = rules.claimed_tail(log, reign), rules.is_electable(log, reign)
    return Send(reign.leader.member, Promise(reign.epoch, member.me, tail, is_electable))


def on_promise(member: Member, promise: Promise, now_s: float) -> Outcome:
    """Count it; lead when it is enough.

    A voter that is ahead may have what is committed and this member has not: it does not count, and it leads if it can.
    """
    role, rules, log = member.role, member.rules, member.log
    if not isinstance(role, Candidate) or promise.epoch != member.reign.epoch or not member.is_saved:
        return member, ()
    voters = rules.in_force(log)
    if not rules.counts_vote(voters, promise.voter):
        return member, ()
    if promise.voter != member.me and rules.is_ahead(promise.tail, log.tail):
        if not promise.is_electable:
            return member, ()
        after, actions = turned(member, Idle())
        return after, (*actions, Suggest(promise.voter.member, promise.epoch))
    kept = tuple(one for one in role.promises if one.voter.member != promise.voter.member)
    promises = (*kept, promise)
    if not rules.is_enough(voters, len(promises)):
        return replace(member, role=Candidate(promises)), ()
    return replace(member, role=Leader(since_s=now_s)), (AppendEpoch(promise.epoch),)


def on_newer(member: Member, news: Newer) -> Outcome:
    """Somebody has promised a higher epoch and cannot follow this leader: ask for one above."""
    if news.epoch <= member.reign.epoch or not isinstance(member.role, Candidate | Leader):
        return member, ()
    if isinstance(member.role, Leader):
        return member, (Suggest(member.me.member, news.epoch),)
    after, actions = turned(member, Idle())
    return after, (*actions, Suggest(member.me.member, news.epoch))


def on_released(member: Member, message: Released) -> Outcome:
    """The leader whose heartbeats gave it a lease reads no more."""
    if message.leader != member.reign.leader or message.epoch != member.reign.epoch:
        return member, ()
    return replace(member, lease_until_s=0.0), ()


def on_leaderless_tick(member: Member, _: Tick, now_s: float) -> Outcome:
    """Stand for election where nobody else is to be asked; otherwise say that no leader is heard."""
    epoch, rules, log = member.reign.epoch, member.rules, member.log
    is_idle = not isinstance(member.role, Follower)
    if is_idle and rules.in_force(log).voters == (member.me.member,) and not isinstance(member.role, Candidate):
        return on_proposed(member, Proposed(epoch + 1, member.me.member), now_s)
    if now_s - member.heard_s < member.limits.silence_s:
        return member, ()
    asks: tuple[Action, ...] = ()
    if isinstance(member.role, Candidate) and member.is_saved:
        asks = tuple(Send(one, PromiseAsk(epoch, member.me)) for one in others_who_vote(member))
    heard_s = now_s - member.limits.silence_s + member.limits.retry_s
    return replace(member, heard_s=heard_s), (*asks, LeaderSilent())


def others_who_vote(member: Member) -> tuple[MemberId, ...]:
    """The other voters in force."""
    return tuple(one for one in member.rules.in_force(member.log).voters if one != member.me.member)
