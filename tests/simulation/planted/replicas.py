"""Planted bug: a replica takes a file that its disk has lost for one that it never had."""

from dataclasses import replace
from typing import Any

from ortoo.enode.disk import hard_state_file
from ortoo.enode.disk.hard_state_file import StoredHardState, write_hard_state
from ortoo.enode.disk.identity import StoreIdentity, read_identity
from ortoo.enode.disk.log_begin import read_log_begin
from ortoo.enode.disk.log_summary_file import StoredLogSummary, write_log_summary
from ortoo.enode.replication import membership
from ortoo.enode.replication.protocol.identity import Configuration, ReplicaId
from ortoo.enode.replication.protocol.log_summary import ConfigurationFrame, LogSummary
from ortoo.namesrv.directory import stores

joins: Any = membership
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
