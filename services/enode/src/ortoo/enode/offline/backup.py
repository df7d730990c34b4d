"""`ortoo-enode backup DIR BACKUP`: copy a store, also while its enode runs.

* `ortoo-enode backup DIR BACKUP`: DIR is the enode's data_dir, and BACKUP another folder on any file system
* `ortoo-enode restore BACKUP DIR`: make a store of the backup

The log only grows, so a copy of its files up to the end of a frame is an earlier state of the store. It has everything
that was acknowledged before the backup began, and no partial frames. A second backup into the same folder
copies only new data.
"""

import argparse
import sys
from collections.abc import Sequence
from contextlib import closing
from itertools import pairwise
from pathlib import Path

from ortoo.common.errors import Conflict, DataLoss, NotFound, Unavailable, Unsupported
from ortoo.common.logs.counts import counted
from ortoo.common.process.clock import Clock, SystemClock
from ortoo.enode.disk.atomic_files import read_part
from ortoo.enode.disk.disk import Disk, RealDisk
from ortoo.enode.disk.identity import StoreIdentity, read_identity
from ortoo.enode.disk.log_begin import read_log_begin
from ortoo.enode.disk.log_summary_file import has_other_replicas
from ortoo.enode.disk.segment_files import SegmentFiles
from ortoo.enode.index.survey import find_log_end, survey
from ortoo.enode.log.frame import HEADER_BYTES
from ortoo.enode.log.segment import Segment, segment_bases, segment_name
from ortoo.enode.offline.backup_list import (
    TEMPORARY,
    BackedUpSegment,
    BackupList,
    copy_file,
    is_empty,
    read_backup_list,
)
from ortoo.enode.recovery.opening import durable_end
from ortoo.enode.recovery.strays import find_strays

ATTEMPTS_MAX = 5
"""Maximum of restarts because retention deleted a segment meanwhile; copied files stay."""


def main(arguments: Sequence[str]) -> int:
    """Take a backup and print its contents. Returns 0. Errors: as `take_backup`."""
    parser = argparse.ArgumentParser(prog="ortoo-enode backup", description="Copy a store, also while its enode runs.")
    parser.add_argument("folder", type=Path, metavar="DIR", help="the store's folder, the enode's data_dir")
    parser.add_argument("target", type=Path, metavar="BACKUP", help="a folder for the backup, or with the previous one")
    chosen = parser.parse_args(arguments)
    listed, new_bytes = take_backup(RealDisk(), chosen.folder, chosen.target, SystemClock())
    sys.stdout.write(
        f"backed up enode {listed.enode} of cluster {listed.cluster} up to log position {listed.end_position}: "
        f"{counted(len(listed.segments), 'segment')}, {counted(new_bytes, 'new byte')}, in {chosen.target}\n"
    )
    return 0


def take_backup(disk: Disk, folder: Path, target: Path, clock: Clock) -> tuple[BackupList, int]:
    """Copy the store in `folder` to `target`; returns the backup's list, and the number of copied bytes.

    Errors: OSError. NotFound without a store. Unsupported for a store with other replicas. Conflict when `target` is in
    use or has other files. DataLoss when the store has less data than before, or less than the previous backup.
    Unavailable when retention deleted segments too fast.
    """
    identity = read_identity(disk, folder)
    if identity is None:
        raise NotFound(f"{folder} is not a store: it has no file `identity`", field="DIR")
    if has_other_replicas(disk, folder, identity.disk):
        raise Unsupported(
            f"{folder} belongs to a replica of enode {identity.enode}, whose other replicas are its copies. Replace a "
            "lost disk by an empty one",
            field="DIR",
        )
    previous = read_backup_list(disk, target)
    if previous is None and not is_empty(disk, target):
        raise Conflict(
            f"{target} holds other files, or an incomplete first backup; choose an empty folder",
            field="BACKUP",
        )
    if previous is not None and previous.store_id != identity.store_id:
        # It may be the backup of this enode's lost store, which a new store of that name must not overwrite.
        raise Conflict(
            f"{target} holds a backup of store {previous.store_id} of enode {previous.enode} of cluster "
            f"{previous.cluster}, but "
            f"{folder} is store {identity.store_id} of enode {identity.enode}; choose another folder",
            field="BACKUP",
        )
    disk.make_folder(target)
    with disk.lock(target):
        for name in disk.list(target):
            if name.endswith(TEMPORARY):
                disk.remove(target / name)
        for _ in range(ATTEMPTS_MAX):
            try:
                return _copy_once(disk, folder, target, identity, previous, clock.now_ms())
            except FileNotFoundError:
                continue
    raise Unavailable("retention removed segments faster than they were copied; retry, possibly under less load")


def _copy_once(
    disk: Disk, folder: Path, target: Path, identity: StoreIdentity, previous: BackupList | None, now_ms: int
) -> tuple[BackupList, int]:
    """One attempt. Errors: FileNotFoundError when retention deleted a segment meanwhile."""
    durable = durable_end(disk, folder)
    # Read the record first: retention advances it before it removes a segment, and keeps two checkpoints behind it.
    begin = read_log_begin(disk, folder)
    starts = [base for base in segment_bases(disk.list(folder)) if begin is None or base >= begin.position]
    with SegmentFiles(disk) as files:
        strays = set(find_strays(files, folder, starts))
    starts = [base for base in starts if base not in strays]
    if read_log_begin(disk, folder) != begin:
        raise FileNotFoundError(folder)  # retention deleted segments between the two reads
    backup_list = BackupList(identity.cluster, identity.enode, identity.store_id, now_ms, 0, begin, log=identity.log)
    new_bytes = 0
    if starts:
        # All data acknowledged before lies below this position, and the log below it no longer changes.
        backup_list.end_position = _log_end(disk, folder, starts[-1], durable)
    if backup_list.end_position < durable:
        raise DataLoss(
            f"{folder} held a log up to position {durable}, but it now ends at position {backup_list.end_position}. "
            "Restore "
            "the missing files, or start the enode, which reports the lost data. Then take another backup"
        )
    sizes = {base: _size(disk, folder / segment_name(base)) for base in starts}
    for base, kept in previous.segments.items() if previous is not None else ():
        # Data that the store has lost since may be whole only in the backup. But bytes that were copied before they
        # were durable may be lost by a power cut. Then the file kept its length, or the next file begins at its end.
        has_all = base in sizes and (kept.used_bytes <= sizes[base] or base + sizes[base] in sizes)
        if not has_all and (begin is None or base >= begin.position):
            raise DataLoss(
                f"{folder / segment_name(base)} is missing or shorter than before, but retention did not delete it. "
                f"{target} has a copy of this segment and was not changed. Restore the segment from there, or back up "
                "the other segments to another folder"
            )
    for base, end in pairwise([*starts, backup_list.end_position]):
        before = previous.segments.get(base) if previous is not None else None
        path = folder / segment_name(base)
        file_bytes = sizes[base]
        used = min(end - base, file_bytes)
        if before is not None and _is_copied(disk, path, target / path.name, before, used, is_last=base == starts[-1]):
            backup_list.segments[base] = before
            continue
        sha256 = copy_file(disk, path, target / path.name, used)
        backup_list.segments[base] = BackedUpSegment(used, file_bytes, sha256)
        new_bytes += used
    disk.sync_directory(target)
    backup_list.write(disk, target)
    for base in segment_bases(disk.list(target)):
        if base not in backup_list.segments:
            disk.remove(target / segment_name(base))
    disk.sync_directory(target)
    return backup_list, new_bytes


def _log_end(disk: Disk, folder: Path, base: int, durable: int) -> int:
    """The end of the last segment: that of its last whole frame, and not below the known durable position."""
    with SegmentFiles(disk) as files:
        segment = Segment(files, folder, base, base)
        segment.limit = base + segment.size_bytes()
        found = survey(segment.read, base, segment.limit)
        found.durable_below = max(found.durable_below, durable)
        return find_log_end(found, segment.read, base, segment.limit)


def _is_copied(
    disk: Disk, source: Path, target: Path, previous: BackedUpSegment, used_bytes: int, *, is_last: bool
) -> bool:
    """Whether a full segment is in the backup; one that a repair truncated has another last frame."""
    if is_last or previous.used_bytes != used_bytes or target.name not in disk.list(target.parent):
        return False
    at = max(0, used_bytes - HEADER_BYTES)
    return read_part(disk, source, at, HEADER_BYTES) == read_part(disk, target, at, HEADER_BYTES)


def _size(disk: Disk, path: Path) -> int:
    with closing(disk.open(path, writable=False)) as file:
        return file.size_bytes()
