"""Opens the log of a replica for its next start, and makes the driver of the protocol over it."""

import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import replace

from ortoo.common.logs.logger import get_logger
from ortoo.common.process.background import Background
from ortoo.enode import log_events
from ortoo.enode.disk.atomic_files import fill_reserve
from ortoo.enode.disk.identity import StoreIdentity
from ortoo.enode.log.settings import StoreSettings
from ortoo.enode.recovery.opening import with_lost_tail
from ortoo.enode.replication.driver import Driver
from ortoo.enode.replication.log_opening import open_replicated_log
from ortoo.enode.replication.membership import ReplicaMembership
from ortoo.enode.replication.protocol.identity import ReplicaId
from ortoo.enode.replication.protocol.messages import Message
from ortoo.enode.replication.protocol.replica import Replica
from ortoo.enode.replication.replicated_log import ReplicatedLog
from ortoo.enode.replication.state_comparison import StateComparison

_log = get_logger("replication")


@contextlib.asynccontextmanager
async def open_log(
    membership: ReplicaMembership, settings: StoreSettings, comparison: StateComparison, *, is_reported: bool = False
) -> AsyncIterator[ReplicatedLog]:
    """Open the log of a replica of a set; leaving the block closes it. Errors: as `open_replicated_log`.

    `is_reported` = name servers are told the number of this start.
    """
    stored, summary = membership.next_incarnation()
    log = await open_replicated_log(
        membership.folder,
        identity=StoreIdentity(
            settings.cluster, settings.enode, stored.set_id, stored.created_at_ms, stored.replica.disk
        ),
        settings=settings,
        disk=membership.disk,
        clock=membership.clock,
        stored=summary,
        begin_under_another_id=membership.begin_under_another_id,
        skipped_checkpoints=comparison.mismatches,
    )
    try:
        _begin_start(membership, log, stored.incarnation, is_reported=is_reported)
        yield log
    finally:
        await log.close()


def _begin_start(membership: ReplicaMembership, log: ReplicatedLog, incarnation: int, *, is_reported: bool) -> None:
    """Make the number of this start durable, and the position that this disk once had, before others are told them.

    Without other replicas the epoch is taken from the log. If name servers are not told the start either, nothing needs
    to be durable. Errors: OSError.
    """
    stored, hard_state = membership.stored, membership.stored.hard_state
    if log.is_alone:
        resumed = replace(hard_state, epoch=max(hard_state.epoch, log.last_epoch))
    else:
        resumed = with_lost_tail(log.former_end, hard_state)
        if resumed != hard_state:
            is_last = log.summary.configuration.voters == (stored.replica,)
            other_copies = "the others must send it again"
            remedy = "`ortoo-enode elect DIR --lose` continues without it" if is_last else other_copies
            _log.emit(log_events.DISK_LOST_DATA, position=log.former_end, remedy=remedy)
    started = replace(stored, incarnation=incarnation, hard_state=resumed)
    if log.is_alone and not is_reported:
        membership.stored = started
        return
    if log.is_alone:  # its next start must not wait for space, because only an open log deletes old messages
        fill_reserve(membership.disk, membership.folder)
    membership.store(started)


def make_driver(
    log: ReplicatedLog,
    membership: ReplicaMembership,
    send: Callable[[ReplicaId, Message], object],
    background: Background,
    comparison: StateComparison,
    *,
    follows_only: bool = False,
) -> Driver:
    """The driver of an open log, which `send`s messages to other replicas. `follows_only` is as in `Replica`."""
    stored, clock = membership.stored, membership.clock
    replica = Replica.initial(
        stored.identity,
        log.summary,
        stored.hard_state,
        clock.monotonic_s(),
        known_committed=log.known_committed,
        follows_only=follows_only,
    )
    return Driver(log, replica, membership, send, background, clock, comparison)
