"""The registered enodes and snodes: leases that end unless they are renewed, and refused requests for a lease.

Pure: `now_s` is monotonic seconds.
"""

import dataclasses
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from ortoo.common.cluster.names import check_process_name
from ortoo.common.cluster.refused import DOUBLE_FIELD, LEASE_FIELD, MEMBERSHIP_FIELD, refused
from ortoo.common.errors import Conflict, Fenced, Overloaded
from ortoo.common.errors.findings import Finding
from ortoo.namesrv.decisions.replicas import EnodeReplica, ReplicaSet, left_ms
from ortoo.namesrv.decisions.text_checks import check_address, check_text

ENODES_MAX = 1_000
SNODES_MAX = 1_000
REPLACED_INCARNATIONS_MAX = 8
REFUSAL_RETENTION_S = 30.0
"""Longer than the interval at which a refused process retries."""
REFUSALS_MAX = 100


@dataclass(frozen=True, slots=True)
class Enode:
    """A storage node, as its process registers it."""

    name: str
    address: str
    store_id: str
    alive: bool = True
    role: str = ""
    epoch: int = 0
    """The epoch of the enode that the address serves."""
    replicas: tuple[EnodeReplica, ...] = ()
    """The replicas from their reports to the name server; a registration does not set them."""
    index_nearly_full: bool = False
    write_refusal: str = ""
    made_from: str = ""
    """The id of the store from which an operator made this one."""
    other_directory_id: str = ""
    """The id of another directory that the enode has followed for a whole lease; empty = it follows this one."""


@dataclass(frozen=True, slots=True)
class Snode:
    """A stateless proxy, as its process registers it."""

    name: str
    address: str
    alive: bool = True
    cluster_address: str = ""


@dataclass(slots=True)
class _EnodeLease:
    enode: Enode
    until_s: float
    differs_since_s: float | None = None
    """Since when it has followed another directory; None = it follows this one."""
    left_epoch: tuple[str, ...] = ()
    """Its earlier addresses in this epoch, since the lease last ended."""


@dataclass(slots=True)
class _SnodeLease:
    snode: Snode
    incarnation: str
    shares_membership: bool
    until_s: float
    replaced: deque[str] = field(default_factory=lambda: deque(maxlen=REPLACED_INCARNATIONS_MAX))


class ProcessLeases:
    """The leases of all processes. A dead enode stays listed, because it holds topics; a dead snode is removed."""

    def __init__(self, lease_s: float) -> None:
        """Start without leases; a lease lasts `lease_s`."""
        self._lease_s = lease_s
        self._enodes: dict[str, _EnodeLease] = {}
        self._snodes: dict[str, _SnodeLease] = {}

    def enodes(self) -> Mapping[str, Enode]:
        """All registered enodes by name."""
        return {name: lease.enode for name, lease in self._enodes.items()}

    def enode_liveness(self) -> dict[str, bool]:
        """Whether each registered enode is alive, by name."""
        return {name: enode.alive for name, enode in self.enodes().items()}

    def snodes(self) -> Mapping[str, Snode]:
        """All live snodes by name."""
        return {name: lease.snode for name, lease in self._snodes.items()}

    def register_enode(self, enode: Enode, now_s: float, other_directory_id: str = "") -> Enode | None:
        """Grant or renew an enode's lease; returns the enode if anything changed.

        `other_directory_id` is the directory that the enode follows, if it is another one. After the loss of a database
        an enode follows the new directory within a lease; one that does not has other name servers.

        Errors: Invalid, Conflict, Overloaded, Fenced if another replica leads the enode in a later epoch.
        """
        check_process_name(enode.name, "enode.name")
        check_address(enode.address, "enode.address")
        check_text(enode.store_id, "enode.store_id", "the id that the store got when it was created")
        self.check_double(enode, now_s)
        known = self._enodes.get(enode.name)
        left: tuple[str, ...] = ()
        if known is None:
            self._evict_dead_enode()
        elif known.enode.store_id == enode.store_id:
            if known.enode.epoch > enode.epoch:
                raise Fenced(
                    f"enode {enode.name!r} is led from {known.enode.address} in epoch {known.enode.epoch}, and this "
                    f"process registered epoch {enode.epoch}, which has ended",
                    field="enode.epoch",
                )
            if self._is_live(known, now_s) and known.enode.epoch == enode.epoch:
                left = self._check_not_left(known, enode, now_s)
            enode = dataclasses.replace(enode, replicas=known.enode.replicas)
        since_s = None
        if other_directory_id:
            since_s = now_s if known is None or known.differs_since_s is None else known.differs_since_s
            if now_s - since_s >= self._lease_s:
                enode = dataclasses.replace(enode, other_directory_id=other_directory_id)
        self._enodes[enode.name] = _EnodeLease(enode, now_s + self._lease_s, since_s, left)
        return None if known is not None and known.enode == enode else enode

    def check_double(self, enode: Enode, now_s: float, *, may_succeed: bool = False) -> None:
        """Refuse an enode if an enode of the same name is alive with another store. Errors: Conflict.

        With `may_succeed`, the error says that this store gets the lease when the present lease ends.
        """
        known = self._enodes.get(enode.name)
        if known is None or not self._is_live(known, now_s) or known.enode.store_id == enode.store_id:
            return
        wait_ms = left_ms(known.until_s, now_s)
        alive = f"enode {enode.name!r} is alive at {known.enode.address} with store {known.enode.store_id}, and this "
        if may_succeed:
            raise Conflict(
                f"{alive}process, whose store {enode.store_id} may replace that store, gets the lease when the current "
                f"lease ends (in {wait_ms} ms, unless it is renewed). Stop the process at {known.enode.address} if it "
                "still runs",
                field=LEASE_FIELD,
                retry_after_ms=wait_ms,
            )
        raise Conflict(
            f"{alive}process has store {enode.store_id}. Give this enode another name, or stop the other process and "
            "retry when its lease has ended",
            field=DOUBLE_FIELD,
            retry_after_ms=wait_ms,
        )

    def _check_not_left(self, known: _EnodeLease, enode: Enode, now_s: float) -> tuple[str, ...]:
        """The former addresses of the enode in this epoch. Errors: Conflict if `enode` registers from one of them."""
        if enode.address in known.left_epoch:
            raise Conflict(
                f"enode {enode.name!r} is alive at {known.enode.address}, and a second process at {enode.address}, "
                f"a former address, uses the same store. Two processes have copies of store {enode.store_id}, and each "
                "stores messages that the other one does not have; stop one of them",
                field="enode.address",
                retry_after_ms=left_ms(known.until_s, now_s),
            )
        moved = known.enode.address != enode.address
        return (*known.left_epoch, known.enode.address)[-REPLACED_INCARNATIONS_MAX:] if moved else known.left_epoch

    def update_replicas(self, replica_set: ReplicaSet, now_s: float) -> Enode | None:
        """Set an enode's replicas and, if the leader is new, its address; returns the enode if anything changed.

        Errors: Overloaded.
        """
        name, leader, route = replica_set.enode, replica_set.leader(), replica_set.route_entries()
        known = self._enodes.get(name)
        if leader is not None and (known is None or leader.epoch > known.enode.epoch):
            other = known is not None and known.enode.alive and known.enode.store_id != leader.set_id
            if not other:
                if known is None:
                    self._evict_dead_enode()
                enode = Enode(name, leader.address, leader.set_id, role=leader.role, epoch=leader.epoch)
                known = self._enodes[name] = _EnodeLease(enode, now_s + self._lease_s)
        if known is None or known.enode.replicas == route:
            return None
        known.enode = dataclasses.replace(known.enode, replicas=route)
        return known.enode

    def register_snode(self, snode: Snode, incarnation: str, *, shares_membership: bool, now_s: float) -> Snode | None:
        """Grant or renew a snode's lease; returns the snode if anything changed.

        Errors: Invalid, Overloaded. Conflict for a snode without shared membership beside another, Fenced if a process
        that started later has the name.
        """
        check_process_name(snode.name, "snode.name")
        check_address(snode.address, "snode.address")
        if snode.cluster_address:
            check_address(snode.cluster_address, "snode.cluster_address")
        check_text(incarnation, "incarnation", "a text that is new at every start of the process")
        known = self._snodes.get(snode.name)
        if known is not None and incarnation in known.replaced:
            raise Fenced(
                f"a process that started later has registered as snode {snode.name!r} (at {known.snode.address}); "
                "stop one of them, or give them different names",
                field="incarnation",
            )
        self._check_membership(snode.name, shares_membership, now_s)
        if known is None and len(self._snodes) >= SNODES_MAX:
            raise Overloaded(f"{SNODES_MAX} snodes are registered, the maximum; stop some")
        replaced = known.replaced if known is not None else deque(maxlen=REPLACED_INCARNATIONS_MAX)
        if known is not None and known.incarnation != incarnation:
            replaced.append(known.incarnation)
        until_s = now_s + self._lease_s
        self._snodes[snode.name] = _SnodeLease(snode, incarnation, shares_membership, until_s, replaced)
        return None if known is not None and known.snode == snode else snode

    def end_enode_lease(self, name: str, epoch: int | None = None) -> Enode | None:
        """End an enode's lease at once; returns the dead enode. With `epoch`, the lease of a later epoch is kept.

        Thus a former leader that shuts down does not end the lease of its successor.
        """
        lease = self._enodes.get(name)
        if lease is None or not lease.enode.alive or (epoch is not None and lease.enode.epoch > epoch):
            return None
        lease.enode = dataclasses.replace(lease.enode, alive=False)
        return lease.enode

    def end_snode_lease(self, name: str) -> Snode | None:
        """End a snode's lease at once; returns the dead snode if it was registered."""
        lease = self._snodes.pop(name, None)
        return None if lease is None else dataclasses.replace(lease.snode, alive=False)

    def forget_enode(self, name: str) -> None:
        """Drop what is known of an enode."""
        self._enodes.pop(name, None)

    def expire(self, now_s: float) -> tuple[list[Enode], list[Snode]]:
        """End all expired leases; returns the processes whose leases have ended."""
        enodes = [n for n, lease in self._enodes.items() if lease.enode.alive and lease.until_s <= now_s]
        snodes = [n for n, lease in self._snodes.items() if lease.until_s <= now_s]
        return (
            [dead for name in enodes if (dead := self.end_enode_lease(name)) is not None],
            [gone for name in snodes if (gone := self.end_snode_lease(name)) is not None],
        )

    def _is_live(self, lease: _EnodeLease, now_s: float) -> bool:
        return lease.enode.alive and lease.until_s > now_s

    def _evict_dead_enode(self) -> None:
        if len(self._enodes) < ENODES_MAX:
            return
        dead = next((name for name, lease in self._enodes.items() if not lease.enode.alive), None)
        if dead is None:
            raise Overloaded(f"{ENODES_MAX} enodes are registered, the maximum; stop some")
        del self._enodes[dead]

    def _check_membership(self, name: str, shares_membership: bool, now_s: float) -> None:
        """Refuse a second snode unless both share group membership, since groups would be split. Errors: Conflict."""
        for other in self._snodes.values():
            if other.snode.name == name or other.until_s <= now_s:
                continue
            if not (shares_membership and other.shares_membership):
                lonely = name if not shares_membership else other.snode.name
                raise Conflict(
                    f"snode {other.snode.name!r} is alive at {other.snode.address}, and snode {lonely!r} does not "
                    "share group membership: groups would be split. Give all snodes the same redis_url "
                    "(ORTOO_SNODE_REDIS_URL), or stop the other snode and retry when its lease has ended",
                    field=MEMBERSHIP_FIELD,
                    retry_after_ms=left_ms(other.until_s, now_s),
                )


class LeaseRefusals:
    """The processes that were refused a lease a short time ago, with the reasons."""

    def __init__(self) -> None:
        """Start empty."""
        self._reasons: dict[str, tuple[Conflict | Fenced, float]] = {}

    def record_refusal(self, process: str, error: Conflict | Fenced, now_s: float) -> None:
        """Record that a process was refused a lease."""
        if process in self._reasons or len(self._recent(now_s)) < REFUSALS_MAX:
            self._reasons[process] = (error, now_s + REFUSAL_RETENTION_S)

    def record_acceptance(self, process: str) -> None:
        """Forget the refusals of a process, because it got a lease."""
        self._reasons.pop(process, None)

    def findings(self, now_s: float) -> Iterator[Finding]:
        """Yield a finding for each refused process, with the reason."""
        for who, (error, _) in sorted(self._recent(now_s).items()):
            yield refused(f"{who} was refused: {error.message}", error)

    def _recent(self, now_s: float) -> dict[str, tuple[Conflict | Fenced, float]]:
        self._reasons = {who: one for who, one in self._reasons.items() if one[1] > now_s}
        return self._reasons
