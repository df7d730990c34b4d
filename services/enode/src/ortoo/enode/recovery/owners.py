"""Checks that the files of a folder belong to one store. A file of another store is never used."""

from pathlib import Path

from ortoo.common.errors import DataLoss
from ortoo.enode.disk.atomic_files import TAG_AT, TAG_BYTES, read_part
from ortoo.enode.disk.clean_stop import FILE_NAME as CLEAN_NAME
from ortoo.enode.disk.disk import Disk
from ortoo.enode.disk.durable_mark import FILE_NAME as TIDE_NAME
from ortoo.enode.disk.identity import FILE_NAME as IDENTITY_NAME
from ortoo.enode.disk.identity import StoreIdentity
from ortoo.enode.disk.log_begin import FILE_NAME as BEGIN_NAME
from ortoo.enode.disk.slots import SERIALS_NAME, SLOT_BYTES
from ortoo.enode.log.frame import FrameHeader, FrameKind
from ortoo.enode.log.scan import walk
from ortoo.enode.log.segment import Segment

_PLACES = {
    BEGIN_NAME: (0,),
    CLEAN_NAME: (0,),
    TIDE_NAME: (0, SLOT_BYTES),
    SERIALS_NAME: tuple(range(0, 6 * SLOT_BYTES, SLOT_BYTES)),
}
"""The positions of the heads in the small files with a tag."""
_MAGIC = b"ORT"


def check_owner(disk: Disk, folder: Path, identity: StoreIdentity) -> None:
    """Refuse an identity that is of another store: the folder's files have tags, and no tag is that of `identity`.

    If some tags match, a file with another tag is not refused. That file is ignored and written again.
    Errors: DataLoss, OSError.
    """
    found = {name: tags for name in disk.list(folder) if (tags := _tags(disk, folder, name))}
    if found and not any(identity.tag in tags for tags in found.values()):
        raise DataLoss(
            f"{folder}: the file {IDENTITY_NAME} is of store {identity.store_id}, but {', '.join(sorted(found))} of "
            f"another store: restore the right {IDENTITY_NAME}, or run `ortoo-enode repair DIR --identity`"
        )


def _tags(disk: Disk, folder: Path, name: str) -> set[int]:
    """The tags in a small file; empty for a file of an older version."""
    places = _PLACES.get(name, ())
    heads = [read_part(disk, folder / name, at, TAG_AT + TAG_BYTES) for at in places]
    tags = {int.from_bytes(head[TAG_AT:], "little") for head in heads if head.startswith(_MAGIC)}
    return tags - {0}


def is_foreign(segment: Segment, position: int, log_mark: int) -> bool:
    """Whether the first frame with a fingerprint from `position` on is of another log. Errors: Unsupported, OSError."""
    frames = walk(segment.read, position, segment.base + segment.size_bytes())
    named = (one for one in frames if isinstance(one, FrameHeader) and one.kind != FrameKind.MESSAGES)
    first = next(named, None)
    return first is not None and not first.is_of(log_mark)


def check_frame_owner(path: Path, foreign_at: int) -> None:
    """Refuse a segment with a frame of another log at `foreign_at`; -1 = no such frame. Errors: DataLoss."""
    if foreign_at >= 0:
        raise DataLoss(
            f"{path} holds a frame of another store at log position {foreign_at}. Restore the right file, or move "
            "this file away; its data is then reported as lost"
        )
