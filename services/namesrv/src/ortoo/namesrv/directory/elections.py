"""Members of enodes report here; who is to lead is decided, stored where all name servers see it, and answered."""

import asyncio
import contextlib
import math
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field

from ortoo.common.errors import NotFound, OrtooError, Unavailable
from ortoo.common.logs.logger import get_logger
from ortoo.common.process.clock import Clock
from ortoo.namesrv import log_events
from ortoo.namesrv.catalog.proposals import Proposals
from ortoo.namesrv.decisions import proposals as decisions
from ortoo.namesrv.decisions.members import MemberReport, Members, MemberSet, MemberState, Proposal
from ortoo.namesrv.decisions.proposals import Standing

HOLD_S = 0.3
"""How long the answer to a member that hears no leader waits for a proposal: it could not do anything before."""
TRIES = 2
"""When another name server was quicker, its proposal is looked at and, if it cannot stand, replaced."""
_log = get_logger("elections")


@dataclass(slots=True)
class _Enode:
    standing: Standing = Standing()
    is_proposing: bool = False
    news: asyncio.Event = field(default_factory=asyncio.Event)


class Elections:
    """What is known of the members of all enodes, and of who was proposed. Only the latter is stored."""

    def __init__(
        self,
        stored: Proposals,
        tell: Callable[[MemberSet], None],
        *,
        lease_s: float,
        shared: bool,
        clock: Clock,
    ) -> None:
        """A report holds for `lease_s`; `tell` hears of sets that may have changed.

        `shared` = other name servers use the same database.
        """
        self._stored = stored
        self._tell = tell
        self._members = Members(lease_s)
        self._shared = shared
        self._clock = clock
        self._enodes: defaultdict[str, _Enode] = defaultdict(_Enode)
        self._is_failing = False

    async def load(self) -> None:
        """Know what was proposed before this start. A database that does not answer is asked again later."""
        await self._read(since_s=-math.inf)

    def sets(self) -> list[MemberSet]:
        """The members of every enode that has some, by name."""
        return [known for _, known in sorted(self._members.sets.items())]

    def found(self, enode: str) -> MemberSet:
        """The members of one enode. Errors: NotFound."""
        known = self._members.sets.get(enode)
        if known is None:
            raise NotFound(
                f"no members of enode {enode!r} report here: give the name of one that has members, or start them",
                field="enode",
            )
        return known

    def proposal(self, enode: str) -> Proposal | None:
        """Who was proposed last, whatever became of it."""
        return self._enodes[enode].standing.proposal if enode in self._enodes else None

    def offered(self, members: MemberSet) -> Proposal | None:
        """Who is to stand now. One that had its time is offered to nobody: it would depose who leads since.

        Nor is one that has won: who led by it, and has handed over since, would stand against its successor.
        """
        standing = self._enodes[members.enode].standing
        may_win = self._clock.monotonic_s() < standing.patient_until_s(members) and standing.epoch > members.led_epoch
        return standing.proposal if may_win else None

    async def report(self, report: MemberReport) -> MemberSet:
        """Take over what a member says, and propose a leader if one is wanted. Errors: as `Members.put`.

        Who hears no leader is answered when there is a proposal, or a little later.
        """
        members = self._members.put(report, self._clock.monotonic_s())
        self._tell(members)
        enode = self._enodes[report.enode]
        if members.set_id != enode.standing.set_id:
            enode.standing = enode.standing.with_set(members.set_id)
        news, before = enode.news, enode.standing.proposal
        await self._propose_wanted(members)
        if report.is_leader_silent and report.set_id and enode.standing.proposal == before and not report.is_leaving:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(HOLD_S):
                    await news.wait()
        return members

    async def elect(self, enode: str, number: int, disk: str) -> Proposal:
        """Propose whom an operator chose. Errors: as `decisions.elected`; Unavailable."""
        members = self.found(enode)
        for _ in range(TRIES):
            wanted = decisions.elected(members, self._enodes[enode].standing, number, disk)
            if await self._store(enode, wanted):
                return wanted
        raise Unavailable("another name server proposes at the same time; look who leads, then retry")

    async def look(self) -> None:
        """End the reports whose time is over, and see what other name servers proposed."""
        for members in self._members.expire(self._clock.monotonic_s()):
            away = [one.member.number for one in members.statuses() if one.state is MemberState.AWAY]
            _log.emit(log_events.REPLICA_REPORTS_MISSING, enode=members.enode, away=away)
            self._tell(members)
        if self._shared and self._members.sets:
            await self._read(since_s=self._clock.monotonic_s())

    async def _read(self, since_s: float) -> None:
        try:
            stored = await self._stored.all()
        except OrtooError as error:
            self._note_failure(error)
            return
        self._is_failing = False
        for name in dict.fromkeys((*stored, *self._enodes)):
            self._learn(name, stored.get(name), since_s)

    def _learn(self, name: str, stored: Proposal | None, since_s: float) -> None:
        enode = self._enodes[name]
        before, enode.standing = enode.standing, enode.standing.with_stored(stored, since_s)
        if enode.standing.proposal != before.proposal:
            self._wake(enode)

    async def _propose_wanted(self, members: MemberSet) -> None:
        """Store what is wanted, unless that is under way."""
        enode = self._enodes[members.enode]
        if enode.is_proposing:
            return
        enode.is_proposing = True
        try:
            for _ in range(TRIES):
                wanted = decisions.wanted(members, enode.standing)
                if wanted is None or await self._store(members.enode, wanted):
                    return
        except OrtooError as error:
            self._note_failure(error)
        finally:
            enode.is_proposing = False

    async def _store(self, name: str, wanted: Proposal) -> bool:
        """Whether it is the last one now, and not somebody else's. Errors: Unavailable, DataLoss."""
        enode = self._enodes[name]
        stored = await self._stored.propose(name, enode.standing.stored_epoch, wanted)
        self._is_failing = False
        self._learn(name, stored, self._clock.monotonic_s())
        if stored != wanted:
            return False
        _log.emit(log_events.LEADER_ELECTION_PROPOSED, enode=name, epoch=wanted.epoch, member=wanted.leader.number)
        return True

    def _wake(self, enode: _Enode) -> None:
        news, enode.news = enode.news, asyncio.Event()
        news.set()

    def _note_failure(self, error: OrtooError) -> None:
        if not self._is_failing:
            _log.emit(log_events.ELECTION_BLOCKED_BY_DATABASE, reason=str(error))
        self._is_failing = True
