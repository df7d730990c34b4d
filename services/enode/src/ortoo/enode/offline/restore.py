"""`ortoo-enode restore BACKUP DIR`: make a store from a backup of `ortoo-enode backup`.

The store continues at the end of the backup. Later messages are lost, and their offsets are assigned again. Therefore
the first start of the store invalidates the leases, locks and sequences that clients got after the backup.
"""

import argparse
import sys
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from ortoo.common.errors import Conflict, DataLoss, NotFound
from ortoo.common.logs.counts import counted
from ortoo.common.process.clock import Clock, SystemClock
from ortoo.common.process.randomness import Randomness
from ortoo.enode.disk.disk import Disk, RealDisk
from ortoo.enode.disk.durable_mark import DurableMark
from ortoo.enode.disk.identity import StoreIdentity, write_identity
from ortoo.enode.disk.log_begin import write_log_begin
from ortoo.enode.disk.segment_files import SegmentFiles
from ortoo.enode.log.segment import segment_name
from ortoo.enode.offline.backup_list import BackupList, copy_file, is_empty, read_backup_list
from ortoo.enode.recovery.only_copy import Recovered, recover
from ortoo.enode.recovery.restored import write_restored_mark


def main(arguments: Sequence[str]) -> int:
    """Restore a backup and print its contents. Returns 0. Errors: those of `make_store`."""
    parser = argparse.ArgumentParser(prog="ortoo-enode restore", description="Make a store of a backup.")
    parser.add_argument("backup", type=Path, metavar="BACKUP", help="the folder of the backup")
    parser.add_argument("folder", type=Path, metavar="DIR", help="an empty folder, to be the enode's data_dir")
    chosen = parser.parse_args(arguments)
    listed, recovered = make_store(RealDisk(), chosen.backup, chosen.folder, SystemClock(), Randomness())
    damages = len(recovered.catalog.damages)
    sys.stdout.write(
        f"restored enode {listed.enode} of cluster {listed.cluster} up to log position {recovered.end_position}: "
        f"{counted(len(recovered.state.topics.all()), 'topic')}, {counted(len(listed.segments), 'segment')}, "
        f"{counted(damages, 'damaged place')}, in {chosen.folder}\n"
    )
    return 0


def make_store(
    disk: Disk, backup: Path, folder: Path, clock: Clock, randomness: Randomness
) -> tuple[BackupList, Recovered]:
    """Copy a backup into an empty folder and recover it; returns the backup's list and the store's contents.

    The store gets its own id, so that name servers distinguish it from its origin.
    Errors: Unsupported, OSError. NotFound without a backup. Conflict when `folder` is not empty. DataLoss when a file
    of the backup was changed.
    """
    backup_list = read_backup_list(disk, backup)
    if backup_list is None:
        raise NotFound(f"{backup} holds no backup: it has no file `backup`", field="BACKUP")
    if not is_empty(disk, folder):
        raise Conflict(f"{folder} is not empty: choose another folder, or move its files away", field="DIR")
    disk.make_folder(folder)
    with disk.lock(folder):
        _mark(disk, folder, backup_list)
        write_restored_mark(disk, folder, randomness)
        for base, one in backup_list.segments.items():
            name = segment_name(base)
            if copy_file(disk, backup / name, folder / name, one.used_bytes) != one.sha256:
                raise DataLoss(
                    f"{backup / name} differs from the list of the backup; restore an older backup, or one in another "
                    "folder"
                )
            file = disk.open(folder / name)
            try:
                file.allocate(max(one.file_bytes, one.used_bytes))
                file.sync_data()
            finally:
                file.close()
        disk.sync_directory(folder)
        source = StoreIdentity(
            backup_list.cluster, backup_list.enode, backup_list.store_id, backup_list.taken_at_ms, log=backup_list.log
        )
        made = replace(source.renewed(randomness.id_text(), clock.now_ms()), folder="", begins_anew=True)
        with SegmentFiles(disk) as files:
            recovered = recover(files, folder, identity=made)
        # The identity comes last, so that no enode starts on a partly restored store.
        write_identity(disk, folder, made)
        _mark(disk, folder, backup_list)
    return backup_list, recovered


def _mark(disk: Disk, folder: Path, listed: BackupList) -> None:
    """Record the log's begin and end: damaged or missing frames between them are then a loss, not a torn tail.

    Both files get the tag of the folder if the folder has an identity.
    """
    with closing(DurableMark(disk, folder)) as mark:
        mark.write(listed.end_position, listed.end_position)
    if listed.begin is not None:
        write_log_begin(disk, folder, listed.begin)
