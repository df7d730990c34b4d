"""The initialization of a replica set, and the admission of an empty disk.

The first configuration is made once, by replica 1, and only when every replica in it has agreed. Each disk stores the
set's id before it agrees, and joins no other set from then on. So if two processes initialize a set with the same
disks, at most one gets the agreement of all. A founder with a lost disk cannot initialize a second set, because the
other disks refuse. If it loses its disk before the set is initialized, the others' folders must be emptied. Nothing was
acknowledged by then.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path

from ortoo.common.errors import Conflict, DataLoss, OrtooError, Unavailable
from ortoo.common.logs.logger import get_logger
from ortoo.common.logs.rate_limit import LogRateLimit
from ortoo.common.process.clock import Clock
from ortoo.common.process.randomness import Randomness
from ortoo.enode import log_events
from ortoo.enode.disk.data_dir import OpenFolder
from ortoo.enode.disk.disk import FULL, Disk, NoDescriptor
from ortoo.enode.disk.hard_state_file import StoredHardState, read_hard_state, write_hard_state
from ortoo.enode.disk.identity import StoreIdentity, read_identity, write_identity
from ortoo.enode.disk.log_summary_file import StoredLogSummary, read_log_summary, write_log_summary
from ortoo.enode.log.flushing.disk_work import DiskWork
from ortoo.enode.log.segment import segment_bases
from ortoo.enode.recovery.hard_state import check_claimable, check_files, last_epoch, summary_of_files
from ortoo.enode.recovery.restored import read_openings_gap, write_mark
from ortoo.enode.replication.protocol.identity import Configuration, HardState, ReplicaId
from ortoo.enode.replication.protocol.log_summary import ConfigurationFrame, LogSummary

JOIN_RETRY_S = 0.5
HARD_STATE_RETRY_S = 0.5
"""The pause before a hard state is written again, when the disk had no space or no file could be opened."""
RANDOM_PARTS = 1 << 32
_log = get_logger("replication")


AskToJoin = Callable[[str, str, int, bool], Awaitable[ReplicaId]]
"""Requests the replica at an address to join (set id, made at), or only asks whether it would; the replica's id.

Errors: Conflict when it belongs to another set.
"""


@dataclass(eq=False)
class ReplicaMembership:
    """The identity of this replica and its set. No other process uses its folder."""

    disk: Disk
    folder: Path
    clock: Clock
    randomness: Randomness
    number: int = 1
    """The number of this replica, 1 or more."""
    initial_voters: int = 1
    """The number of voters of the first configuration."""
    addresses: tuple[str, ...] = ()
    """The replicas' addresses, by number; only the founder needs them."""
    stored: StoredHardState = field(init=False)
    """The hard state. The file may be older while there is no other replica; see `may_defer`."""

    def __post_init__(self) -> None:
        """Read the hard state; an empty folder gets a new one. Errors: Conflict, DataLoss, OSError."""
        kept = self._written = read_hard_state(self.disk, self.folder)
        if kept is None:
            kept = self._claim_folder()
        elif kept.replica.number != self.number:
            raise Conflict(
                f"{self.folder} belongs to replica {kept.replica.number}, but this is replica {self.number}: "
                "choose another folder or correct the settings",
                field="replica",
            )
        else:
            self._finish(kept, check_files(self.disk, self.folder, kept))
        self.stored = kept
        self.opened = OpenFolder.taken(self.disk, self.folder)
        """The open folder; no hard state is written when it is no longer at its path."""
        self._counted = kept.incarnation
        """The last number that `next_incarnation` gave. A failed write may have left a part of it on the disk."""
        self._log_rate = LogRateLimit()
        self._saving = asyncio.Lock()
        self._joined = asyncio.Event()
        if kept.set_id:
            self._joined.set()

    async def keep_reign(self, reign: HardState, work: DiskWork) -> bool:
        """Make a new vote durable. Returns False after a pause if the disk has no space, or no descriptor is free.

        Errors: as `write`.
        """
        async with self._saving:
            kept = replace(self.stored, hard_state=reign)
            try:
                await work.run(self.write, kept)
            except (NoDescriptor, OSError) as error:
                if isinstance(error, OSError) and error.errno not in FULL:
                    raise
                _log.emit(log_events.HARD_STATE_POSTPONED, epoch=reign.epoch, reason=str(error))
                await self.clock.sleep(HARD_STATE_RETRY_S)
                return False
            self.stored = kept
        return True

    def may_defer(self, reign: HardState, configuration: Configuration) -> bool:
        """Whether a vote need not be durable: the vote of a replica for itself while `configuration` has no other one.

        No other replica can ask for a vote in that epoch, and the EPOCH frame records the epoch before anything is
        acknowledged. The next start reads it from the log. The first vote is always written, because a file with a
        vote shows that the folder had an identity.
        """
        own = self.stored.identity
        has_voted = self._written is not None and self._written.hard_state.epoch > 0
        is_own = reign.leader == own and configuration.replicas == (own.replica,)
        return has_voted and is_own and not self._saving.locked()

    async def save(self, work: DiskWork) -> None:
        """Make a deferred hard state durable, before the log lists another replica. Errors: as `write`."""
        async with self._saving:
            if self._written != self.stored:
                await work.run(self.write, self.stored)

    def _claim_folder(self) -> StoredHardState:
        """The first hard state of a folder, which is empty or of an enode without replicas.

        Errors: DataLoss for a folder that once had hard state.
        """
        identity = read_identity(self.disk, self.folder)
        check_claimable(self.disk, self.folder, identity)
        epoch = last_epoch(self.disk, self.folder)
        if identity is None:
            replica, is_founder = ReplicaId(self.number, self.randomness.id_text()), self.number == 1
            set_id, created_at_ms = (self.randomness.id_text(), self.clock.now_ms()) if is_founder else ("", 0)
            stored = StoredHardState(replica, set_id, created_at_ms, is_founder=is_founder)
        elif self.number != 1:
            # It may be a copy of replica 1's log, and two sets of one would both lead.
            raise Conflict(
                f"{self.folder} holds the log of an enode without replicas: start it as replica 1, or empty it",
                field="replica",
            )
        else:
            # The set gets its own id, so that two copies of one store become two different sets.
            replica, set_id = ReplicaId(1, identity.folder_id), self.randomness.id_text()
            hard_state = HardState(epoch)
            stored = StoredHardState(
                replica, set_id, self.clock.now_ms(), hard_state=hard_state, made_from=identity.store_id
            )
        write_hard_state(self.disk, self.folder, stored)
        self._written = stored
        self._finish(stored, identity)
        return stored

    def _finish(self, kept: StoredHardState, identity: StoreIdentity | None) -> None:
        """Record in the identity that the store has hard state, and the id of its set, from now on."""
        if identity is None or (identity.has_hard_state and identity.store_id == kept.set_id):
            return
        if identity.store_id != kept.made_from:  # an older version wrote it
            write_identity(self.disk, self.folder, replace(identity, disk=kept.replica.disk))
            return
        if read_log_summary(self.disk, self.folder) is None:
            write_log_summary(self.disk, self.folder, summary_of_files(self.disk, self.folder, kept.replica))
        begins_anew = read_openings_gap(self.disk, self.folder) > 0
        renewed = identity.renewed(kept.set_id, kept.created_at_ms, kept.replica.disk)
        write_identity(self.disk, self.folder, replace(renewed, begins_anew=begins_anew))

    def begin_under_another_id(self) -> None:
        """Give the set another id, because its only replica lost the end of the log. Clients' state becomes invalid.

        An interrupted call is completed by the next start. Errors: as `write`.
        """
        identity = read_identity(self.disk, self.folder)
        if identity is None or identity.begins_anew:
            return
        write_mark(self.disk, self.folder)
        set_id = self.randomness.id_text()
        self.store(replace(self.stored, set_id=set_id, created_at_ms=self.clock.now_ms(), made_from=identity.store_id))
        self._finish(self.stored, identity)

    async def join(self, set_id: str, created_at_ms: int, *, dry_run: bool = False) -> ReplicaId:
        """Join a set, or with `dry_run` only check whether this is possible.

        Errors: Conflict when this disk belongs to another set. Unavailable when the disk fails.
        """
        if self.stored.set_id and self.stored.set_id != set_id and not self._may_leave():
            raise Conflict(
                f"replica {self.stored.replica.number} belongs to set {self.stored.set_id}: empty its folder "
                f"{self.folder} "
                "first",
                field="set_id",
            )
        if self.stored.set_id != set_id and not dry_run:
            try:
                self.store(replace(self.stored, set_id=set_id, created_at_ms=created_at_ms, is_founder=False))
            except OSError as error:
                raise Unavailable(f"the disk failed: {error}") from error
            self._joined.set()
        return self.stored.replica

    def _may_leave(self) -> bool:
        """Whether this is a founder whose set is not initialized yet."""
        return self.stored.is_founder and read_log_summary(self.disk, self.folder) is None

    def write(self, kept: StoredHardState) -> None:
        """Make a hard state durable. Errors: OSError. FolderGone if the path leads to another folder."""
        self.opened.check_folder()
        write_hard_state(self.disk, self.folder, kept)
        self._written = kept

    def store(self, stored: StoredHardState) -> None:
        """Store a new hard state. Errors: as `write`."""
        self.write(stored)
        self.stored = stored

    async def join_or_found(self, ask: AskToJoin) -> None:
        """Return when this replica belongs to an initialized set."""
        if not self.stored.set_id and self.number == 1:
            set_id, created_at_ms = self.randomness.id_text(), self.clock.now_ms()
            self.store(replace(self.stored, set_id=set_id, created_at_ms=created_at_ms, is_founder=True))
        while self.stored.is_founder and read_log_summary(self.disk, self.folder) is None:
            if segment_bases(self.disk.list(self.folder)):
                raise DataLoss(f"{self.folder} holds a log of unknown replicas: empty it, and add its disk again")
            await self._found_set(ask)
        await self._joined.wait()

    async def _found_set(self, ask: AskToJoin) -> None:
        """Ask all others whether they would join, then request it; when all have joined, initialize the set.

        Without the first question some would join this set although another one already belongs to an older set.
        """
        stored = self.stored
        others: list[ReplicaId] = []
        addresses = enumerate(self.addresses[: self.initial_voters], 1)
        other_addresses = [(number, address) for number, address in addresses if number != self.number]
        for asks_only, (number, address) in product((True, False), other_addresses):
            try:
                other = await ask(address, stored.set_id, stored.created_at_ms, asks_only)
                if other.number != number:
                    raise Conflict(f"at {address} is replica {other.number}, not {number}", field="replica_addresses")
                others += [] if asks_only else [other]
            except OrtooError as error:
                if self._log_rate.acquire(str(number), self.clock.monotonic_s()):
                    _log.emit(log_events.REPLICA_SET_WAITING, replica=number, address=address, reason=str(error))
                await self.clock.sleep(JOIN_RETRY_S)
                return
        if self.stored != stored:
            return  # it was added to another set meanwhile
        voters = tuple(sorted([stored.replica, *others]))
        first = LogSummary(configurations=(ConfigurationFrame(0, Configuration(voters)),))
        write_log_summary(self.disk, self.folder, StoredLogSummary(first))
        self._joined.set()
        _log.emit(log_events.REPLICA_SET_INITIALIZED, set_id=stored.set_id, replicas=len(voters))

    def next_incarnation(self) -> tuple[StoredHardState, StoredLogSummary]:
        """The hard state and the log summary for a start of this replica, with the number of the next start.

        The number must be durable before `stored` has it, because reports to name servers contain it. A number
        that was reported and lost is counted again, and the start with that number is refused.
        """
        self._counted = incarnation = next_incarnation(max(self.stored.incarnation, self._counted), self.randomness)
        summary = read_log_summary(self.disk, self.folder) or StoredLogSummary()
        return replace(self.stored, incarnation=incarnation), summary


def next_incarnation(before: int, randomness: Randomness) -> int:
    """The number of the next start: a counter followed by a random part.

    The counter of a disk that was restored from an image repeats. The random part still makes another start of it, so
    that messages and votes for the lost start do not count.
    """
    return (before // RANDOM_PARTS + 1) * RANDOM_PARTS + randomness.below(RANDOM_PARTS)
