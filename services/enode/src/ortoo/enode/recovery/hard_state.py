"""Checks whether a folder may be opened without hard state, and whether its files belong together.

A missing file proves nothing. Only its hard state has the vote of a replica and the position that its disk once had. A
folder that was ever part of a replica set is never opened without it.
"""

import contextlib
from pathlib import Path

from ortoo.common.errors import Conflict, DataLoss
from ortoo.enode.disk.disk import Disk
from ortoo.enode.disk.hard_state_file import FILE_NAME as REIGN_NAME
from ortoo.enode.disk.hard_state_file import REJOIN_ADVICE, StoredHardState, read_hard_state, read_serial
from ortoo.enode.disk.identity import FILE_NAME as IDENTITY_NAME
from ortoo.enode.disk.identity import StoreIdentity, is_of_log, read_identity
from ortoo.enode.disk.log_begin import read_log_begin
from ortoo.enode.disk.log_summary_file import FILE_NAME as OUTLINE_NAME
from ortoo.enode.disk.log_summary_file import StoredLogSummary, has_other_replicas, read_log_summary
from ortoo.enode.disk.segment_files import SegmentFiles
from ortoo.enode.disk.slots import SERIALS_NAME
from ortoo.enode.log.copies.truncated_frames import PREFIX as CUT_PREFIX
from ortoo.enode.log.frame import FrameHeader
from ortoo.enode.log.scan import walk
from ortoo.enode.log.segment import SUFFIX, Segment, segment_bases
from ortoo.enode.recovery.owners import check_frame_owner, check_owner, is_foreign
from ortoo.enode.recovery.restored import FILE_NAME as RESTORED_NAME
from ortoo.enode.recovery.restored import read_openings_gap
from ortoo.enode.recovery.strays import frame_at
from ortoo.enode.replication.protocol.identity import Configuration, ReplicaId
from ortoo.enode.replication.protocol.log_summary import ConfigurationFrame, EpochHistory, EpochStart, LogSummary


def check_only_replica(disk: Disk, folder: Path, advice: str) -> None:
    """Refuse a disk of a set with other replicas, for callers that do not replicate.

    The acknowledgements of the disk count in a majority, and data written only there would differ from the other
    replicas. Hard state of another disk is left to `check_files`.
    Errors: as `read_hard_state`. Conflict with `advice`.
    """
    stored = read_hard_state(disk, folder)
    with contextlib.suppress(DataLoss):
        identity = read_identity(disk, folder)
        if stored is not None and identity is not None and identity.disk not in ("", stored.replica.disk):
            return
    if stored is not None and has_other_replicas(disk, folder, stored.replica.disk):
        raise Conflict(f"{folder} is the disk of replica {stored.replica.number} of set {stored.set_id}: {advice}")


def check_never_of_a_set(disk: Disk, folder: Path) -> None:
    """Refuse a folder without hard state that was ever part of a replica set.

    Errors: DataLoss, Unsupported, OSError.
    """
    if trace := trace_of_set(disk, folder):
        raise _missing(folder, trace)


def check_claimable(disk: Disk, folder: Path, identity: StoreIdentity | None) -> None:
    """Check a folder without hard state before it gets one, because a refused start must change nothing.

    Errors: Unsupported, OSError. DataLoss for a folder that is not whole, or of several stores.
    """
    names = disk.list(folder)
    if identity is None:
        if left := [name for name in names if is_of_log(name)]:
            raise DataLoss(
                f"{folder} holds a log ({left[0]}) but no file {IDENTITY_NAME}: put it back from a copy, or run "
                f"`ortoo-enode repair`. If it was the folder of a replica, {REJOIN_ADVICE}"
            )
        check_never_of_a_set(disk, folder)
        return
    check_never_of_a_set(disk, folder)
    read_openings_gap(disk, folder)
    check_owner(disk, folder, identity)
    for base in segment_bases(names)[-1:]:
        _check_segment(disk, folder, base, identity.log_mark)


def is_restored(disk: Disk, folder: Path) -> bool:
    """Whether a folder was restored from a backup and not started since. Its log may have epochs without hard state."""
    with contextlib.suppress(DataLoss):
        identity = read_identity(disk, folder)
        if identity is not None:
            return identity.begins_anew and not identity.has_hard_state
    return RESTORED_NAME in disk.list(folder)


def _missing(folder: Path, trace: str) -> DataLoss:
    return DataLoss(
        f"{folder} belongs to a replica set ({trace}), but its hard state, the file {REIGN_NAME}, is missing: "
        f"{REJOIN_ADVICE}"
    )


def trace_of_set(disk: Disk, folder: Path) -> str:
    """The evidence that a folder was part of a replica set; empty if there is none. Errors: Unsupported, OSError."""
    names = disk.list(folder)
    with contextlib.suppress(DataLoss):  # a damaged identity is no evidence, and is refused when it is needed
        identity = read_identity(disk, folder)
        if identity is not None and identity.has_hard_state:
            return f"its {IDENTITY_NAME} says that it was initialized with hard state"
    for name in names:
        if name == OUTLINE_NAME or name.startswith(CUT_PREFIX):
            return f"it has the file {name}"
    if any(read_serial(disk, folder)):
        return f"its file {SERIALS_NAME} counts writes of {REIGN_NAME}"
    for base in [] if is_restored(disk, folder) else segment_bases(names)[-1:]:
        if epoch := epoch_at(disk, folder, base):
            return f"a leader started its last segment in epoch {epoch}"
    return ""


def last_epoch(disk: Disk, folder: Path) -> int:
    """The epoch of the newest frames of a folder without hard state.

    Errors: Unsupported, OSError. DataLoss when a leader wrote them, unless the folder was made of a backup.
    """
    with SegmentFiles(disk) as files:
        for base in reversed(segment_bases(disk.list(folder))):
            segment = Segment(files, folder, base, base)
            frames = walk(segment.read, base, base + segment.size_bytes())
            epochs = [one.leader_epoch for one in frames if isinstance(one, FrameHeader)]
            if epochs:
                if (epoch := max(epochs)) and not is_restored(disk, folder):
                    raise _missing(folder, f"a leader wrote the end of its log in epoch {epoch}")
                return epoch
    return 0


def epoch_at(disk: Disk, folder: Path, base: int) -> int:
    """The epoch of the first frame of a segment; 0 without a frame. The epoch never falls along the log."""
    with SegmentFiles(disk) as files:
        frame = frame_at(Segment(files, folder, base, base), base)
    return frame.leader_epoch if frame is not None else 0


def summary_of_files(disk: Disk, folder: Path, replica: ReplicaId) -> StoredLogSummary:
    """The log summary of the only replica from the log's begin and its epoch. The rest is read from the log."""
    recorded, starts = read_log_begin(disk, folder), segment_bases(disk.list(folder))
    begin = recorded.position if recorded is not None else min(starts, default=0)
    if starts and not epoch_at(disk, folder, starts[-1]):
        end = max(begin, starts[-1])  # no earlier segment has a frame of the protocol
    else:
        end = begin
    epoch = epoch_at(disk, folder, begin) if begin in starts else 0
    history = EpochHistory((EpochStart(epoch, begin),)) if epoch and begin else EpochHistory()
    alone = (ConfigurationFrame(begin, Configuration((replica,))),)
    return StoredLogSummary(LogSummary(begin, end, begin, begin, history, alone))


def check_files(disk: Disk, folder: Path, stored: StoredHardState) -> StoreIdentity | None:
    """Compare a replica's files with its hard state, and return the identity of the store; None if there is none.

    Errors: Unsupported, OSError. DataLoss when a file is missing, of another store, or an older copy.
    """
    identity, names = read_identity(disk, folder), disk.list(folder)
    if identity is None:
        if left := [name for name in names if is_of_log(name)]:
            raise DataLoss(f"{folder} holds a log ({left[0]}) but no file {IDENTITY_NAME}: {REJOIN_ADVICE}")
        if stored.hard_state.epoch:  # a vote is written only when there is an identity
            raise DataLoss(
                f"{folder} has voted in epoch {stored.hard_state.epoch}, but has no file {IDENTITY_NAME}: "
                f"{REJOIN_ADVICE}"
            )
        return None
    is_renewed = not identity.has_hard_state or read_openings_gap(disk, folder) > 0
    if is_renewed and identity.store_id == stored.made_from:
        return identity  # the store that the set is being made of, or that begins again under another id
    if identity.disk not in ("", stored.replica.disk) or identity.store_id != stored.set_id:
        raise DataLoss(
            f"{folder}: the file {IDENTITY_NAME} is of store {identity.store_id} (disk {identity.disk or 'unknown'}), "
            f"but {REIGN_NAME} is of set {stored.set_id or '(none)'} (disk {stored.replica.disk}). One of the two "
            "is an "
            "older copy, or of another store. If `ortoo-enode elect` was interrupted, run it again; otherwise "
            f"{REJOIN_ADVICE}"
        )
    has_segments, stored_summary = any(name.endswith(SUFFIX) for name in names), read_log_summary(disk, folder)
    if has_segments and stored_summary is None:
        raise DataLoss(f"{folder} holds a log but no file {OUTLINE_NAME}, which lists its replicas: {REJOIN_ADVICE}")
    is_only = stored_summary is not None and stored_summary.summary.configuration.replicas == (stored.replica,)
    if is_only and stored.hard_state.epoch and not has_segments and not is_renewed:  # its log precedes its first vote
        raise DataLoss(
            f"{folder} has voted in epoch {stored.hard_state.epoch}, so it held a log, but no segment is left. Restore "
            f"the files from a copy, or run `ortoo-enode repair {folder} --caches` to start an empty log"
        )
    for base in segment_bases(names)[-1:]:
        _check_segment(disk, folder, base, identity.log_mark)
    return identity


def _check_segment(disk: Disk, folder: Path, base: int, log_mark: int) -> None:
    """Check a segment up to the first frame with a fingerprint. Errors: DataLoss when that is of another log."""
    with SegmentFiles(disk) as files:
        segment = Segment(files, folder, base, base)
        if is_foreign(segment, base, log_mark):
            check_frame_owner(segment.path, base)
