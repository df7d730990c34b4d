"""`ortoo-enode restore BACKUP DIR`: make a store of a backup that `ortoo-enode backup` took.

The store goes on where the backup ends. What was stored after it is gone, and the offsets of that are given again; so
its first start ends what consumers, producers and leases that outlived it say of the old ones.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from ortoo.common.errors import Conflict, DataLoss, NotFound
from ortoo.common.process.clock import Clock, SystemClock
from ortoo.common.process.randomness import Randomness
from ortoo.enode.disk.disk import Disk, RealDisk
from ortoo.enode.disk.identity import Identity, write_identity
from ortoo.enode.disk.log_begin import write_log_begin
from ortoo.enode.disk.segment_files import SegmentFiles
from ortoo.enode.disk.tide_mark import TideMark
from ortoo.enode.log.segment import segment_name
from ortoo.enode.offline.backup_list import BackupList, copied, is_empty, read_backup_list
from ortoo.enode.recovery.opening import Recovered, recover
from ortoo.enode.recovery.restored import write_restored


def main(arguments: Sequence[str]) -> int:
    """Restore a backup and say what is there. Returns 0. Errors: as `make_store`."""
    parser = argparse.ArgumentParser(prog="ortoo-enode restore", description="Make a store of a backup.")
    parser.add_argument("backup", type=Path, metavar="BACKUP", help="the folder of the backup")
    parser.add_argument("folder", type=Path, metavar="DIR", help="an empty folder, to be the enode's data_dir")
    chosen = parser.parse_args(arguments)
    listed, recovered = make_store(RealDisk(), chosen.backup, chosen.folder, SystemClock(), Randomness())
    damages = len(recovered.catalog.damages)
    sys.stdout.write(
        f"restored enode {listed.enode} of cluster {listed.cluster} up to log position {recovered.end_position}: "
        f"{len(recovered.state.topics.all())} topics, {len(listed.segments)} segments, {damages} damaged places, in "
        f"{chosen.folder}\n"
    )
    return 0


def make_store(
    disk: Disk, backup: Path, folder: Path, clock: Clock, randomness: Randomness
) -> tuple[BackupList, Recovered]:
    """Copy a backup into an empty folder and put it right; the backup's list, and what is in the store.

    It has an id of its own, so that name servers take it and the store that it was made of for two.
    Errors: NotFound without a backup; Conflict when `folder` is not empty; DataLoss when a file of the backup is not
    what was backed up; Unsupported, OSError.
    """
    listed = read_backup_list(disk, backup)
    if listed is None:
        raise NotFound(f"{backup} holds no backup: it has no file `backup`", field="BACKUP")
    if not is_empty(disk, folder):
        raise Conflict(f"{folder} is not empty: give another folder, or move what is there away", field="DIR")
    disk.make_folder(folder)
    with disk.lock(folder):
        mark = TideMark(disk, folder)
        mark.write(listed.end_position)  # whatever is bad or missing below that is a loss, and no torn tail
        mark.close()
        write_restored(disk, folder, randomness)
        for base, one in listed.segments.items():
            name = segment_name(base)
            if copied(disk, backup / name, folder / name, one.used_bytes) != one.sha256:
                raise DataLoss(
                    f"{backup / name} is not what was backed up; take an older backup, or another one in another folder"
                )
            file = disk.open(folder / name)
            try:
                file.allocate(max(one.file_bytes, one.used_bytes))
                file.sync_data()
            finally:
                file.close()
        if listed.begin is not None:
            write_log_begin(disk, folder, listed.begin)
        disk.sync_directory(folder)
        with SegmentFiles(disk) as files:
            recovered = recover(files, folder)
        # Whose store it is comes last: without that nothing starts on what was restored in part.
        identity = Identity(listed.cluster, listed.enode, randomness.id_text(), clock.now_ms())
        write_identity(disk, folder, identity)
    return listed, recovered
