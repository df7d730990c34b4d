"""The mark of a store that ends before what others know of it, and was not started yet.

It was made of a backup, or is the disk of a set that goes on alone because a majority is lost, or its last file was cut
short, or its end was given up by a repair.

Others have outlived what is gone: a session that is ahead of its queue would pass over new messages that get the old
offsets, an old handle would settle a new lease, end another's transaction or recall another's message, and a producer
would meet a gap in its sequences for ever. So they all have to begin anew. The mark stays until that is in the log.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from ortoo.common.errors import DataLoss
from ortoo.common.groups.system_topics import SYSTEM_TOPIC_IDS
from ortoo.common.process.randomness import Randomness
from ortoo.enode.changes.all import Change, Forget, LocksPut, OffsetsSkipped
from ortoo.enode.disk.disk import Disk
from ortoo.enode.disk.identity import Identity, read_identity, write_identity
from ortoo.enode.disk.lines import read_lines, write_lines
from ortoo.enode.state.fold import State

FILE_NAME = "restored"
VERSION = 1
APART = 1 << 12
"""By how much the number of openings is raised at least; numbers of leases have 24 bits for it."""
SHIFT = 20
"""Generations of locks, and the places where messages wait, are raised by so many times more."""


ADVICE = "restore the backup again, or run the `ortoo-enode` command again that made this store"


def write_restored(disk: Disk, folder: Path, randomness: Randomness | None = None) -> None:
    """Mark a store. Of two that are made of one, each raises the numbers by another one.

    The identity says so as well, if there is one: a mark that is lost must not be taken for one that was never there.
    """
    _write(disk, folder, randomness)
    if (identity := read_identity(disk, folder)) is not None:
        write_identity(disk, folder, replace(identity, begins_anew=True))


def _write(disk: Disk, folder: Path, randomness: Randomness | None = None) -> None:
    more = randomness.below(APART) if randomness is not None else 0
    write_lines(disk, folder / FILE_NAME, VERSION, {"apart": APART + more})


def begin_under_another_id(disk: Disk, folder: Path, renewed: Callable[[Identity], Identity]) -> None:
    """Mark a store that lost its end, and give it another id: it gives offsets again that its former id gave.

    It may be interrupted anywhere, and is done once. Errors: OSError.
    """
    identity = read_identity(disk, folder)
    if not read_apart(disk, folder):
        _write(disk, folder)
    if identity is not None and not identity.begins_anew:
        write_identity(disk, folder, replace(renewed(identity), begins_anew=True))


def read_apart(disk: Disk, folder: Path) -> int:
    """By how much to raise the number of openings; 0 in a store without the mark.

    Errors: DataLoss when the mark is damaged, or missing though the identity tells of it; Unsupported.
    """
    apart = read_lines(disk, folder / FILE_NAME, VERSION, ADVICE, lambda fields: int(fields["apart"])) or 0
    identity = read_identity(disk, folder)
    if not apart and identity is not None and identity.begins_anew:
        raise DataLoss(
            f"{folder} ends before what its clients know of it, and its file {FILE_NAME}, which says how they begin "
            f"anew, is missing: {ADVICE}"
        )
    return apart


def forget_restored(disk: Disk, folder: Path) -> None:
    """Remove the mark: all is in the log."""
    if (identity := read_identity(disk, folder)) is not None:
        write_identity(disk, folder, replace(identity, begins_anew=False))
    disk.remove(folder / FILE_NAME)
    disk.sync_directory(folder)


def begin_anew(state: State, apart: int, stored_at_ms: int) -> list[Change]:
    """What lets sessions take their locks again and producers new ids, and gives no place that was given before.

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
