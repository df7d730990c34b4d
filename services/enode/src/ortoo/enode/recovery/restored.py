"""The mark of a store that ends before its clients' latest knowledge, and was not started yet.

Such a store was made of a backup, or its last file was cut short, or a repair removed its end. Or it is the disk of a
set that continues alone after the loss of a majority.

Clients still hold positions, handles and numbers of the lost end. A session ahead of its queue would skip new messages
with reused offsets. An old handle would match a new lease, transaction or delayed message. A producer would have a
permanent gap in its sequences. Therefore all of these are invalidated. The mark stays until that is in the log.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from ortoo.common.errors import DataLoss
from ortoo.common.groups.system_topics import SYSTEM_TOPIC_IDS
from ortoo.common.process.randomness import Randomness
from ortoo.enode.changes.kinds import Change, Forget, LocksPut, OffsetsSkipped
from ortoo.enode.disk.disk import Disk
from ortoo.enode.disk.identity import Identity, read_identity, write_identity
from ortoo.enode.disk.json_files import read_lines, write_lines
from ortoo.enode.state.fold import State

FILE_NAME = "restored"
VERSION = 1
APART = 1 << 12
"""Minimum by which the number of openings is raised; numbers of leases have 24 bits for it."""
SHIFT = 20
"""Generations of locks, and places of deferred messages, are raised by the same number shifted by these bits."""


ADVICE = "restore the backup again, or repeat the `ortoo-enode` command that made this store"


def write_restored(disk: Disk, folder: Path, randomness: Randomness | None = None) -> None:
    """Mark a store. With `randomness`, two stores that are made of one raise the numbers differently.

    The identity, if there is one, records the mark, too, so that a lost mark is noticed.
    """
    write_mark(disk, folder, randomness)
    if (identity := read_identity(disk, folder)) is not None:
        write_identity(disk, folder, replace(identity, begins_anew=True))


def write_mark(disk: Disk, folder: Path, randomness: Randomness | None = None) -> None:
    """As `write_restored`, if the caller writes an identity with `begins_anew` next."""
    more = randomness.below(APART) if randomness is not None else 0
    write_lines(disk, folder / FILE_NAME, VERSION, {"apart": APART + more})


def begin_under_another_id(disk: Disk, folder: Path, renewed: Callable[[Identity], Identity]) -> None:
    """Mark a store that lost its end, and give it another id, because it assigns offsets of its former id again.

    It may be interrupted anywhere, and has an effect only once. Errors: OSError.
    """
    identity = read_identity(disk, folder)
    if not read_apart(disk, folder):
        write_mark(disk, folder)
    if identity is not None and not identity.begins_anew:
        write_identity(disk, folder, replace(renewed(identity), begins_anew=True))


def read_apart(disk: Disk, folder: Path) -> int:
    """The difference by which to raise the number of openings; 0 in a store without the mark.

    Errors: Unsupported. DataLoss when the mark is damaged, or missing although the identity requires it.
    """
    apart = read_lines(disk, folder / FILE_NAME, VERSION, ADVICE, lambda fields: int(fields["apart"])) or 0
    identity = read_identity(disk, folder)
    if not apart and identity is not None and identity.begins_anew:
        raise DataLoss(
            f"{folder} ends before its clients' latest knowledge, but its file {FILE_NAME}, which invalidates their "
            f"state, is missing: {ADVICE}"
        )
    return apart


def forget_restored(disk: Disk, folder: Path) -> None:
    """Remove the mark, because its effect is in the log."""
    if (identity := read_identity(disk, folder)) is not None:
        write_identity(disk, folder, replace(identity, begins_anew=False))
    disk.remove(folder / FILE_NAME)
    disk.sync_directory(folder)


def begin_anew(state: State, apart: int, stored_at_ms: int) -> list[Change]:
    """The changes that invalidate locks and producer ids, and skip places that may have been assigned before.

    `stored_at_ms` is the time of the last frame of the log.
    """
    places = dict.fromkeys(((topic_id, 0) for topic_id in SYSTEM_TOPIC_IDS), state.ends.floor)
    places |= {key: end.offset for key, end in state.ends.all() if key in places}
    return [
        Forget(stored_at_ms + 1, 0),
        *(
            LocksPut(topic_id, group, "", "", "", ((queue_id, lock.generation + (apart << SHIFT)),))
            for (topic_id, group, queue_id), lock in state.locks.all()
        ),
        *(OffsetsSkipped(*key, place, place + (apart << SHIFT)) for key, place in places.items()),
    ]
