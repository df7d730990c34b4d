"""Planted: state that the next leader of an enode misreads, or that a snode takes from the former one."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from ortoo.enode.disk import hard_state_file
from ortoo.enode.disk.hard_state_file import StoredHardState, write_hard_state
from ortoo.enode.disk.identity import StoreIdentity, read_identity
from ortoo.enode.disk.log_begin import read_log_begin
from ortoo.enode.disk.log_summary_file import StoredLogSummary, write_log_summary
from ortoo.enode.pops import lines
from ortoo.enode.replication import membership
from ortoo.enode.replication.protocol.identity import Configuration, ReplicaId
from ortoo.enode.replication.protocol.log_summary import ConfigurationFrame, LogSummary
from ortoo.enode.state.tables import timers
from ortoo.namesrv.directory import stores
from ortoo.snode.enodes import held_appends, replica_link

joins: Any = membership
delayed: Any = timers
known: Any = stores
"""The planted functions replace names that these modules imported."""


def a_missing_file_is_evidence() -> None:
    """G1: a replica without its hard state treats its folder as that of an enode without replicas.

    It becomes a set of one with the set's own id, and raises its epoch at each start. Name servers believe it.
    """
    plain = membership.ReplicaMembership._claim_folder

    def claimed(self: Any) -> StoredHardState:
        identity = read_identity(self.disk, self.folder)
        if identity is None or self.number != 1:
            return plain(self)
        member, begin = ReplicaId(self.number, self.randomness.id_text()), read_log_begin(self.disk, self.folder)
        position = begin.position if begin else 0
        placed = (ConfigurationFrame(position, Configuration((member,))),)
        outline = LogSummary(position, position, position, position, configurations=placed)
        write_log_summary(self.disk, self.folder, StoredLogSummary(outline))
        kept = StoredHardState(member, identity.store_id, identity.created_at_ms)
        write_hard_state(self.disk, self.folder, kept)
        return kept

    real = joins.check_files

    def check_files(disk: Any, folder: Any, kept: StoredHardState) -> StoreIdentity | None:
        identity = read_identity(disk, folder)
        if identity is not None:
            kept = replace(kept, replica=ReplicaId(kept.replica.number, identity.disk), set_id=identity.store_id)
        checked: StoreIdentity | None = real(disk, folder, kept)
        return checked

    membership.ReplicaMembership._claim_folder = claimed  # type: ignore[method-assign]
    joins.check_files = check_files
    hard_state_file.read_serial = lambda disk, folder: (0, 0)
    known.check_lineage = lambda known, report: None


def pop_lease_numbers_restart() -> None:
    """G8: each leader numbers its leases from 1."""

    def number(self: Any) -> int:
        self._own_count = getattr(self, "_own_count", 0) + 1
        return int(self._own_count)

    lines.PopLines.next_number = number  # type: ignore[method-assign]


def late_pops_of_a_former_leader_count() -> None:
    """G8: a snode takes the leases that a former leader granted, however late they arrive."""

    def keep(self: Any) -> None:
        """Wait for all answers."""

    replica_link.ReplicaLink.close_leases = keep  # type: ignore[method-assign]


def held_appends_are_released_last_first() -> None:
    """G5: appends that waited for a leader are sent to it in reverse order."""
    take = held_appends.HeldAppends._take_all

    def reverse(self: Any) -> Any:
        return take(self)[::-1]

    held_appends.HeldAppends._take_all = reverse  # type: ignore[method-assign]


def a_checkpoint_drops_a_timer() -> None:
    """G6: a checkpoint leaves out every third delayed message."""

    def some(self: Any) -> Iterator[bytes]:
        for buckets in (self._far, self._near):
            for _, bucket in delayed.iterate_live(buckets):
                for rows in bucket.drawn(delayed.ROWS_PER_CHANGE):
                    written = self._checkpoint_rows(rows)
                    written = written[written["timer_id"] % 3 != 1]
                    if len(written):
                        yield delayed.TimerRows(written.tobytes()).encoded()

    timers.TimerTable.checkpoint = some  # type: ignore[method-assign]
