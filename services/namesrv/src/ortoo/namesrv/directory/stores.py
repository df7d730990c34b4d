"""The registered store of each enode: stored, so that it survives restarts, and served from memory."""

import math
from collections.abc import Callable

from ortoo.common.cluster.refused import STORE_FIELD
from ortoo.common.errors import Conflict, Invalid, NotFound, OrtooError, Overloaded
from ortoo.common.logs.logger import get_logger
from ortoo.common.process.clock import Clock
from ortoo.namesrv import log_events
from ortoo.namesrv.catalog.stores import Stores
from ortoo.namesrv.decisions.known_stores import (
    LOG_END_INTERVAL_S,
    EnodeLog,
    KnownStore,
    check_lineage,
    check_store,
    may_come,
)
from ortoo.namesrv.decisions.replicas import ReplicaId, ReplicaReport, ReplicaSet
from ortoo.namesrv.decisions.text_checks import check_text

STORES_MAX = 10_000
_log = get_logger("stores")


class StoresOfEnodes:
    """The registered stores of all enodes."""

    def __init__(self, stored: Stores, *, shared: bool, clock: Clock) -> None:
        """`shared` = other name servers use the same database."""
        self._stored = stored
        self._shared = shared
        self._clock = clock
        self._known: dict[str, KnownStore] = {}
        self._kept: dict[str, KnownStore] = {}
        """The stores in the database, as far as this name server has read or written them."""
        self._log_noted_s: dict[str, float] = {}
        """The time of the last change of each enode's known log end."""
        self._is_failing = False
        self.on_forgotten: Callable[[str], None] = lambda enode: None
        """Called with the name of each enode that an operator has forgotten, at this or another name server."""

    async def load(self) -> None:
        """Read the registered stores that the database has at this start. Errors: Unavailable, DataLoss."""
        for found in (await self._stored.all()).values():
            self._learn(found)
        self._is_failing = False

    async def refresh(self) -> None:
        """Read the stores that other name servers have registered."""
        if not self._shared:
            return
        try:
            await self.load()
        except OrtooError as error:
            self._note_failure(error)

    def is_acceptable(self, enode: str, store_id: str, made_from: str) -> bool:
        """Whether `check` accepts the store of an enode."""
        return may_come(self._known.get(enode), store_id, made_from)

    def check(self, enode: str, store_id: str, made_from: str, log: EnodeLog | None = None) -> None:
        """Refuse a store if the enode has registered another one from which this store was not made (`made_from`).

        The registered store is refused if its `log` was longer before. Errors: Conflict, Invalid.
        """
        known = self._known.get(enode)
        check_store(known, enode, store_id, made_from)
        _check_log(known, enode, store_id, log)

    def check_report(self, report: ReplicaReport) -> None:
        """Refuse a replica whose store may not be used. Errors: as `check` and `check_lineage`."""
        if report.set_id:
            self.check(report.enode, report.set_id, report.made_from)
            check_lineage(self._known.get(report.enode), report)

    async def note_replicas(self, members: ReplicaSet) -> None:
        """Register an enode's replica set with its current replicas. Errors: as `note`."""
        latest = members.configuration()
        replicas = tuple(sorted({*latest.voters, *latest.learners})) if latest is not None else None
        await self.note(members.enode, members.set_id, replicas)

    async def note(
        self,
        enode: str,
        store_id: str,
        replicas: tuple[ReplicaId, ...] | None = None,
        log: EnodeLog | None = None,
    ) -> None:
        """Register a store that `check` has accepted.

        While the database does not answer, the store is registered in memory and stored later. Errors: Conflict if
        another name server has registered another store, or a longer log. Overloaded.
        """
        if enode not in self._known and len(self._known) >= STORES_MAX:
            raise Overloaded(f"{STORES_MAX} enodes have registered since the directory was created, the maximum")
        known = self._known.get(enode) or KnownStore(enode, store_id)
        if replicas is None:
            replicas = known.replicas if known.store_id == store_id else ()
        if (known.store_id, known.replicas) != (store_id, replicas) or known.version == 0:
            known = known.changed(store_id, replicas)
        if log is not None and self._is_log_due(known, log):
            known = known.with_log(log)
            self._log_noted_s[enode] = self._clock.monotonic_s()
        self._known[enode] = known
        if self._kept.get(enode) != known:
            await self._keep(known, log)

    def _is_log_due(self, known: KnownStore, log: EnodeLog) -> bool:
        """Whether to store the reported log: at once for a new start, otherwise rarely, because a write is costly."""
        if known.log_start != log.start:
            return True
        age_s = self._clock.monotonic_s() - self._log_noted_s.get(known.enode, -math.inf)
        return log.durable_end > known.log_end and age_s >= LOG_END_INTERVAL_S

    async def accept(self, enode: str, store_id: str) -> str:
        """Permit `store_id` to replace the registered store of an enode; returns the id of the registered store.

        The registered store stays accepted until the permitted store registers, so that a mistyped id does no harm.
        Errors: Invalid, NotFound if the enode never registered, Conflict, Unavailable if the permission cannot be
        stored.
        """
        check_text(store_id, STORE_FIELD, "the id of the store, as in the refusal")
        known = self._known.get(enode)
        if known is None:
            raise NotFound(f"enode {enode!r} never registered: give the name of a registered enode", field="enode")
        if known.store_id == store_id and not known.accepted:
            raise Invalid(f"enode {enode!r} has store {store_id} already", field=STORE_FIELD)
        wanted = known.accepting(store_id)
        stored = await self._stored.put(wanted)
        self._learn(stored)
        if stored != wanted:
            raise Conflict(
                "another name server changed the store of this enode at the same time; check its store, then retry"
            )
        _log.emit(log_events.STORE_ACCEPTED, enode=enode, store_id=store_id, former_store_id=known.store_id)
        return known.store_id

    def find(self, enode: str) -> KnownStore | None:
        """The registered store of an enode; None if it never registered and was never forgotten."""
        return self._known.get(enode)

    async def forget(self, enode: str) -> None:
        """Let no store of an enode register until an operator accepts one. Errors: Conflict, Unavailable, DataLoss."""
        known = self._known.get(enode) or KnownStore(enode, "")
        if known.is_forgotten and known.version:
            self.on_forgotten(enode)
            return
        wanted = known.forgotten()
        stored = await self._stored.put(wanted)
        self._learn(stored)
        if stored != wanted:
            raise Conflict("another name server changed the store of this enode at the same time; check, then retry")
        _log.emit(log_events.ENODE_FORGOTTEN, enode=enode, former_store_id=known.store_id)

    async def _keep(self, known: KnownStore, log: EnodeLog | None) -> None:
        try:
            stored = await self._stored.put(known)
        except OrtooError as error:
            self._note_failure(error)
            return
        self._is_failing = False
        self._learn(stored)
        if stored.store_id != known.store_id:
            self._known[known.enode] = stored
            check_store(stored, known.enode, known.store_id, "")
        _check_log(stored, known.enode, known.store_id, log)

    def _learn(self, stored: KnownStore) -> None:
        """Apply the stored value, unless the one in memory is newer.

        Of two name servers that made the same version, one has stored its value.
        """
        self._kept[stored.enode] = stored
        known = self._known.get(stored.enode)
        if known is None or (stored.version >= known.version and stored != known):
            self._log_noted_s[stored.enode] = self._clock.monotonic_s()
            self._known[stored.enode] = stored
            if stored.is_forgotten:
                self.on_forgotten(stored.enode)

    def _note_failure(self, error: OrtooError) -> None:
        if not self._is_failing:
            _log.emit(log_events.STORES_NOT_KEPT, reason=str(error))
        self._is_failing = True


def _check_log(known: KnownStore | None, enode: str, store_id: str, log: EnodeLog | None) -> None:
    """Refuse the registered store if its log is shorter than it was. Errors: Conflict, Invalid."""
    if log is None:
        return
    log.check()
    if known is not None and known.store_id == store_id:
        log.check_end(enode, known.log_start, known.log_end)
