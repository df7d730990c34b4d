"""The mark of a store whose log lacks its newest part, and which was not started since then.

Such a store was made from a backup, or its last file was cut short, or a repair removed its end. Or it is the only
replica that continues after the loss of a majority.

Clients still hold positions, handles and numbers of the lost end. A session ahead of its queue would skip new messages
with reused offsets. An old handle would match a new lease, transaction or delayed message. A producer would have a
permanent gap in its sequences. Therefore all of these are invalidated. The mark stays until the invalidation is in the
log.
"""

from dataclasses import replace
from pathlib import Path

from ortoo.common.errors import DataLoss
from ortoo.common.groups.system_topics import SYSTEM_TOPIC_IDS
from ortoo.common.process.randomness import Randomness
from ortoo.enode.changes.kinds import ExpiredDropped, LocksChanged, OffsetsSkipped, StateChange
from ortoo.enode.changes.pops import LeasesInvalidated
from ortoo.enode.disk.disk import Disk
from ortoo.enode.disk.identity import read_identity, write_identity
from ortoo.enode.disk.json_files import read_json_file, write_json_file
from ortoo.enode.state.fold import State

FILE_NAME = "restored"
VERSION = 1
OPENINGS_GAP = 1 << 12
"""Minimum by which the number of openings is raised; numbers of leases have 24 bits for it."""
GENERATIONS_SHIFT = 20
"""Generations of locks, and places of deferred messages, are raised by the same number shifted by these bits."""
ADVICE = "restore the backup again, or repeat the `ortoo-enode` command that made this store"


def write_restored_mark(disk: Disk, folder: Path, randomness: Randomness | None = None) -> None:
    """Mark a store. With `randomness`, two stores from the same backup raise their numbers by different amounts.

    The identity, if there is one, records the mark, too, so that a lost mark is noticed.
    """
    write_mark(disk, folder, randomness)
    if (identity := read_identity(disk, folder)) is not None:
        write_identity(disk, folder, replace(identity, begins_anew=True))


def write_mark(disk: Disk, folder: Path, randomness: Randomness | None = None) -> None:
    """Write only the mark, for a caller that then writes an identity with `begins_anew`."""
    more = randomness.below(OPENINGS_GAP) if randomness is not None else 0
    write_json_file(disk, folder / FILE_NAME, VERSION, {"apart": OPENINGS_GAP + more})


def read_openings_gap(disk: Disk, folder: Path) -> int:
    """The difference by which to raise the number of openings; 0 in a store without the mark.

    Errors: Unsupported. DataLoss when the mark is damaged, or missing although the identity requires it.
    """
    apart = read_json_file(disk, folder / FILE_NAME, VERSION, ADVICE, lambda fields: int(fields["apart"])) or 0
    identity = read_identity(disk, folder)
    if not apart and identity is not None and identity.begins_anew:
        raise DataLoss(
            f"the log in {folder} lacks its newest part, which clients may have seen. The file {FILE_NAME}, which "
            f"invalidates the clients' old positions, is missing: {ADVICE}"
        )
    return apart


def remove_restored_mark(disk: Disk, folder: Path) -> None:
    """Remove the mark, because its effect is in the log."""
    if (identity := read_identity(disk, folder)) is not None:
        write_identity(disk, folder, replace(identity, begins_anew=False))
    disk.remove(folder / FILE_NAME)
    disk.sync_directory(folder)


def invalidation_changes(
    state: State, openings_gap: int, first_lease_number: int, stored_at_ms: int
) -> list[StateChange]:
    """The changes that invalidate leases, locks and producer ids, and skip places that the lost end may have assigned.

    `first_lease_number` is the first lease number of this opening. `stored_at_ms` is the time of the log's last frame.
    """
    next_places = dict.fromkeys(((topic_id, 0) for topic_id in SYSTEM_TOPIC_IDS), state.ends.floor)
    next_places |= {key: end.offset for key, end in state.ends.all() if key in next_places}
    return [
        LeasesInvalidated(first_lease_number),
        ExpiredDropped(stored_at_ms + 1, 0),
        *(
            LocksChanged(
                topic_id, group, "", "", "", ((queue_id, lock.generation + (openings_gap << GENERATIONS_SHIFT)),)
            )
            for (topic_id, group, queue_id), lock in state.locks.all()
        ),
        *(
            OffsetsSkipped(*key, place, place + (openings_gap << GENERATIONS_SHIFT))
            for key, place in next_places.items()
        ),
    ]
