"""Elections: replicas report, a leader is proposed, stored for all name servers, and returned to the replicas."""

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
from ortoo.namesrv.catalog.stored_proposals import StoredProposals
from ortoo.namesrv.decisions import proposals as decisions
from ortoo.namesrv.decisions.proposals import ProposalState
from ortoo.namesrv.decisions.replicas import Proposal, ReplicaReport, ReplicaSet, ReplicaSets, ReplicaState

LONG_POLL_S = 0.3
"""How long the answer to a replica without a leader waits for a proposal; without one the answer is of no use."""
STORE_ATTEMPTS_MAX = 2
"""If another name server stored a proposal first, it is checked, and replaced if that leader cannot win."""
_log = get_logger("elections")


@dataclass(slots=True)
class _EnodeState:
    proposal_state: ProposalState = ProposalState()
    is_proposing: bool = False
    changed: asyncio.Event = field(default_factory=asyncio.Event)


class Elections:
    """The replicas of all enodes and their proposed leaders. Only the proposals are stored in the database."""

    def __init__(
        self,
        stored: StoredProposals,
        on_change: Callable[[ReplicaSet], None],
        *,
        lease_s: float,
        shared: bool,
        clock: Clock,
    ) -> None:
        """A report is valid for `lease_s`; `on_change` is called with replica sets that may have changed.

        `shared` = other name servers use the same database.
        """
        self._stored = stored
        self._on_change = on_change
        self._members = ReplicaSets(lease_s)
        self._shared = shared
        self._clock = clock
        self._enodes: defaultdict[str, _EnodeState] = defaultdict(_EnodeState)
        self._is_failing = False

    async def load(self) -> None:
        """Read the proposals that the database has at this start.

        If the database does not answer, `refresh` reads them later.
        """
        await self._read(since_s=-math.inf)

    def sets(self) -> list[ReplicaSet]:
        """The replica sets of all enodes that have replicas, sorted by enode."""
        return [known for _, known in sorted(self._members.sets.items())]

    def get(self, enode: str) -> ReplicaSet:
        """The replica set of one enode. Errors: NotFound."""
        known = self._members.sets.get(enode)
        if known is None:
            raise NotFound(
                f"no replica of enode {enode!r} reports here: start its replicas, or give the name of another enode",
                field="enode",
            )
        return known

    def reporting(self, enode: str) -> str:
        """The numbers of an enode's replicas that report; empty without any."""
        known = self._members.sets.get(enode)
        return ", ".join(str(one.number) for one in sorted(known.live_replicas)) if known is not None else ""

    def forget(self, enode: str) -> None:
        """Drop the reports of an enode's replicas. The last proposal stays, because epochs never go back."""
        self._members.sets.pop(enode, None)

    def proposal(self, enode: str) -> Proposal | None:
        """The last proposal for an enode, even if it failed; None if there was none."""
        return self._enodes[enode].proposal_state.proposal if enode in self._enodes else None

    def current_proposal(self, members: ReplicaSet) -> Proposal | None:
        """The proposal that a replica must follow now; None if it has failed or succeeded, or there is none.

        A proposed replica that started late would depose a leader that was elected meanwhile. A replica that has led in
        this epoch, and has transferred its leadership, would compete with its successor.
        """
        standing = self._enodes[members.enode].proposal_state
        may_win = (
            self._clock.monotonic_s() < standing.deadline_s(members) and standing.epoch > members.last_leader_epoch
        )
        return standing.proposal if may_win else None

    async def report(self, report: ReplicaReport) -> ReplicaSet:
        """Store a replica's report, and propose a leader if one is needed; returns the replica set.

        If the replica has no leader, the call waits up to `LONG_POLL_S` for a proposal. Errors: as
        `ReplicaSets.update`.
        """
        members = self._members.update(report, self._clock.monotonic_s())
        self._on_change(members)
        enode = self._enodes[report.enode]
        if members.set_id != enode.proposal_state.set_id:
            enode.proposal_state = enode.proposal_state.with_set(members.set_id)
        news, before = enode.changed, enode.proposal_state.proposal
        await self._propose_next(members)
        if (
            report.is_leader_silent
            and report.set_id
            and enode.proposal_state.proposal == before
            and not report.is_leaving
        ):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LONG_POLL_S):
                    await news.wait()
        return members

    async def elect(self, enode: str, number: int, disk: str) -> Proposal:
        """Propose the replica that an operator chose as leader. Errors: as `proposals.operator_choice`; Unavailable."""
        members = self.get(enode)
        for _ in range(STORE_ATTEMPTS_MAX):
            wanted = decisions.operator_choice(members, self._enodes[enode].proposal_state, number, disk)
            if await self._store(enode, wanted):
                return wanted
        raise Unavailable(
            "another name server stored a proposal at the same time; check which replica leads, then retry"
        )

    async def refresh(self) -> None:
        """Expire old reports of replicas, and read the proposals of other name servers."""
        for members in self._members.expire(self._clock.monotonic_s()):
            away = [one.replica.number for one in members.statuses() if one.state is ReplicaState.AWAY]
            _log.emit(log_events.REPLICA_REPORTS_MISSING, enode=members.enode, away=away)
            self._on_change(members)
        if self._shared and self._members.sets:
            await self._read(since_s=self._clock.monotonic_s())

    async def _read(self, since_s: float) -> None:
        try:
            stored = await self._stored.load_all()
        except OrtooError as error:
            self._record_failure(error)
            return
        self._is_failing = False
        for name in dict.fromkeys((*stored, *self._enodes)):
            self._apply_stored(name, stored.get(name), since_s)

    def _apply_stored(self, name: str, proposal: Proposal | None, since_s: float) -> None:
        enode = self._enodes[name]
        before, enode.proposal_state = enode.proposal_state, enode.proposal_state.with_stored(proposal, since_s)
        if enode.proposal_state.proposal != before.proposal:
            self._wake(enode)

    async def _propose_next(self, members: ReplicaSet) -> None:
        """Store the needed proposal, unless another call is storing a proposal."""
        enode = self._enodes[members.enode]
        if enode.is_proposing:
            return
        enode.is_proposing = True
        try:
            for _ in range(STORE_ATTEMPTS_MAX):
                wanted = decisions.next_proposal(members, enode.proposal_state)
                if wanted is None or await self._store(members.enode, wanted):
                    return
        except OrtooError as error:
            self._record_failure(error)
        finally:
            enode.is_proposing = False

    async def _store(self, name: str, proposal: Proposal) -> bool:
        """Store `proposal`; False if another proposal was stored first. Errors: Unavailable, DataLoss."""
        enode = self._enodes[name]
        stored = await self._stored.compare_and_store(name, enode.proposal_state.stored_epoch, proposal)
        self._is_failing = False
        self._apply_stored(name, stored, self._clock.monotonic_s())
        if stored != proposal:
            return False
        _log.emit(log_events.LEADER_ELECTION_PROPOSED, enode=name, epoch=proposal.epoch, replica=proposal.leader.number)
        return True

    def _wake(self, enode: _EnodeState) -> None:
        news, enode.changed = enode.changed, asyncio.Event()
        news.set()

    def _record_failure(self, error: OrtooError) -> None:
        if not self._is_failing:
            _log.emit(log_events.ELECTION_BLOCKED_BY_DATABASE, reason=str(error))
        self._is_failing = True
