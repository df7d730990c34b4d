"""The content of a disk and the content that a power cut would leave: the model behind `MemoryDisk`.

Each change of a disk is an `Operation`, a plain value, so that a recorded list can be replayed up to any point. Beside
the live content, the image keeps the durable content and the pending changes: writes not followed by `SyncData`, and
names not followed by `SyncFolder`.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from ortoo.common.process.randomness import Randomness

PAGE_BYTES = 4096
"""The unit of the kernel's write-back; the pages of a file reach the disk in any order."""
SECTOR_BYTES = 512
"""The unit that a disk writes atomically."""


@dataclass(frozen=True, slots=True)
class CreateFile:
    """Give a name to a new, empty file."""

    path: Path
    number: int


@dataclass(frozen=True, slots=True)
class WriteFile:
    """Write bytes into a file."""

    number: int
    position: int
    data: bytes


@dataclass(frozen=True, slots=True)
class ResizeFile:
    """Truncate a file or extend it with zeros."""

    number: int
    length: int


@dataclass(frozen=True, slots=True)
class SyncData:
    """Make a file's bytes durable. With `failed` the sync fails, and the kernel drops the dirty state."""

    number: int
    failed: bool = False


@dataclass(frozen=True, slots=True)
class RenameFile:
    """Replace one name by another."""

    source: Path
    target: Path


@dataclass(frozen=True, slots=True)
class RemoveFile:
    """Remove a name."""

    path: Path


@dataclass(frozen=True, slots=True)
class SyncFolder:
    """Make the names in a folder durable."""

    folder: Path


@dataclass(frozen=True, slots=True)
class MakeFolder:
    """Create a folder durably, as `Disk.make_folder` promises."""

    folder: Path


Operation = CreateFile | WriteFile | ResizeFile | SyncData | RenameFile | RemoveFile | SyncFolder | MakeFolder


class FileContent:
    """The bytes of one file: as programs see them, the durable ones, and the pending changes."""

    __slots__ = ("current", "durable", "lost", "pending")

    def __init__(self, durable: bytes = b"") -> None:
        """A file that holds `durable`."""
        self.durable = bytearray(durable)
        self.current = bytearray(durable)
        self.pending: list[WriteFile | ResizeFile] = []
        """Not synced yet, oldest first."""
        self.lost: list[WriteFile | ResizeFile] = []
        """A sync of these failed: they may have reached the disk, and no later sync writes them again."""

    def change(self, operation: WriteFile | ResizeFile) -> None:
        """Write or resize, not durably."""
        _apply(self.current, operation)
        self.pending.append(operation)

    def sync(self) -> None:
        """Make all pending changes durable. Newer writes replace the bytes of lost ones at the same positions."""
        for operation in self.pending:
            if isinstance(operation, WriteFile):
                self.lost = [part for one in self.lost for part in _outside(one, operation)]
            _apply(self.durable, operation)
        self.pending.clear()

    def sync_failed(self) -> None:
        """The disk failed and the kernel marked the pages clean, as Linux does."""
        self.lost += self.pending
        self.pending.clear()

    def after_crash(self, choice: Randomness, outcome: "CrashOutcome") -> bytes:
        """The bytes that a power cut leaves, as `choice` decides."""
        operations = self.lost + self.pending
        if not operations or outcome is LOSE_UNSYNCED:
            return bytes(self.durable)
        if outcome is KEEP_UNSYNCED:
            return bytes(self.current)
        pieces: dict[int, list[WriteFile]] = {}
        lengths = [len(self.durable)]
        for operation in operations:
            if isinstance(operation, ResizeFile):
                lengths.append(operation.length)
            else:
                lengths.append(max(lengths[-1], operation.position + len(operation.data)))
                for piece in _pages(operation):
                    pieces.setdefault(piece.position // PAGE_BYTES, []).append(piece)
        # Without a pending change of size the length is certain; otherwise any of them may be the last that arrived.
        length = lengths[choice.below(len(lengths))]
        left = bytearray(max(lengths))
        left[: len(self.durable)] = self.durable
        for page in sorted(pieces):
            for piece in _surviving(pieces[page], choice, outcome):
                _apply(left, piece)
        return bytes(left[:length])


@dataclass(frozen=True, slots=True)
class CrashOutcome:
    """The treatment of bytes and names that were not synced."""

    torn_pages: bool = True
    """A page may arrive in part: some of its sectors, up to any byte."""
    names_in_order: bool = True
    """Names arrive in the order of their changes, as in a journal; otherwise each may arrive without the others."""


LOSE_UNSYNCED = CrashOutcome(False, False)
"""Nothing that was not synced arrives."""
KEEP_UNSYNCED = CrashOutcome(False, True)
"""A killed process: the kernel still writes everything."""


@dataclass(slots=True)
class Folder:
    """Names in one folder."""

    current: dict[str, int] = field(default_factory=dict)
    durable: dict[str, int] = field(default_factory=dict)
    pending: list[tuple[str, str, int]] = field(default_factory=list)
    """(name removed or "", name added or "", file number)."""

    def change(self, removed: str, added: str, number: int) -> None:
        """Remove one name and add another, in one step, not durably."""
        _rename(self.current, removed, added, number)
        self.pending.append((removed, added, number))

    def sync(self) -> None:
        """Make the names durable."""
        self.durable = dict(self.current)
        self.pending.clear()

    def after_crash(self, choice: Randomness, outcome: CrashOutcome) -> dict[str, int]:
        """The names that a power cut leaves, as `choice` decides."""
        if outcome is KEEP_UNSYNCED:
            return dict(self.current)
        left = dict(self.durable)
        if outcome is LOSE_UNSYNCED:
            return left
        if outcome.names_in_order:
            arrived = self.pending[: choice.below(len(self.pending) + 1)]
        else:
            arrived = [one for one in self.pending if choice.below(2)]
        for gone, come, number in arrived:
            _rename(left, gone, come, number)
        return left


class DiskImage:
    """All files and folders of a disk, changed by operations alone."""

    def __init__(self) -> None:
        """An empty disk."""
        self.folders: dict[Path, Folder] = {}
        self.contents: dict[int, FileContent] = {}
        self.files_made = 0
        self._used_bytes: int | None = None
        """The result of `used_bytes`; None after a change of a size or a name."""

    def apply(self, operation: Operation) -> None:
        """Apply one operation; the caller has checked it, or recorded it where it succeeded."""
        if isinstance(operation, WriteFile | ResizeFile):
            content = self.contents[operation.number]
            size_bytes = len(content.current)
            content.change(operation)
            if len(content.current) != size_bytes:
                self._used_bytes = None
        elif isinstance(operation, SyncData):
            content = self.contents[operation.number]
            if operation.failed:
                content.sync_failed()
            else:
                content.sync()
        else:
            self._used_bytes = None
            self._apply_name(operation)

    def _apply_name(self, operation: CreateFile | RenameFile | RemoveFile | SyncFolder | MakeFolder) -> None:
        if isinstance(operation, SyncFolder):
            self.folders[operation.folder].sync()
        elif isinstance(operation, MakeFolder):
            self.folders.setdefault(operation.folder, Folder())
        elif isinstance(operation, CreateFile):
            self.contents[operation.number] = FileContent()
            self.files_made = max(self.files_made, operation.number)
            self.folders[operation.path.parent].change("", operation.path.name, operation.number)
        elif isinstance(operation, RenameFile):
            folder = self.folders[operation.source.parent]
            folder.change(operation.source.name, operation.target.name, folder.current[operation.source.name])
        else:
            folder = self.folders[operation.path.parent]
            folder.change(operation.path.name, "", folder.current[operation.path.name])

    def after_crash(self, choice: Randomness, outcome: CrashOutcome) -> "DiskImage":
        """A new image of the disk after a power cut now."""
        left = DiskImage()
        left.files_made = self.files_made
        for path, folder in self.folders.items():
            names = folder.after_crash(choice, outcome)
            left.folders[path] = Folder(names, dict(names))
            for number in names.values():
                if number not in left.contents:
                    left.contents[number] = FileContent(self.contents[number].after_crash(choice, outcome))
        return left

    def number_of(self, path: Path) -> int | None:
        """The file behind a name; None if there is none."""
        folder = self.folders.get(path.parent)
        return None if folder is None else folder.current.get(path.name)

    def used_bytes(self) -> int:
        """The total size of all files with a name."""
        if self._used_bytes is None:
            self._used_bytes = sum(
                len(self.contents[number].current) for one in self.folders.values() for number in one.current.values()
            )
        return self._used_bytes

    def remove(self, path: Path) -> None:
        """Remove a file, durably."""
        folder = self.folders[path.parent]
        folder.change(path.name, "", folder.current[path.name])
        folder.sync()
        self._used_bytes = None


def _outside(lost: WriteFile | ResizeFile, newer: WriteFile) -> Iterator[WriteFile | ResizeFile]:
    """The parts of a lost write outside a newer one."""
    if isinstance(lost, ResizeFile):
        yield lost
        return
    begin, end = lost.position, lost.position + len(lost.data)
    if before := lost.data[: max(0, newer.position - begin)]:
        yield WriteFile(lost.number, begin, before)
    behind = max(begin, newer.position + len(newer.data))
    if behind < end:
        yield WriteFile(lost.number, behind, lost.data[behind - begin :])


def _apply(data: bytearray, operation: WriteFile | ResizeFile) -> None:
    if isinstance(operation, WriteFile):
        end = operation.position + len(operation.data)
        if operation.position > len(data):
            data.extend(bytes(operation.position - len(data)))
        data[operation.position : end] = operation.data
    elif operation.length < len(data):
        del data[operation.length :]
    else:
        data.extend(bytes(operation.length - len(data)))


def _rename(names: dict[str, int], removed: str, added: str, number: int) -> None:
    if removed and names.get(removed) == number:
        del names[removed]
    if added:
        names[added] = number


def _pages(write: WriteFile) -> Iterator[WriteFile]:
    """A write split at page boundaries."""
    position, end = write.position, write.position + len(write.data)
    while position < end:
        stop = min(end, (position // PAGE_BYTES + 1) * PAGE_BYTES)
        yield WriteFile(write.number, position, write.data[position - write.position : stop - write.position])
        position = stop


def _surviving(pieces: list[WriteFile], choice: Randomness, outcome: CrashOutcome) -> Iterator[WriteFile]:
    """The changes of a page that arrived: the first few, and perhaps a part of the next."""
    count = choice.below(len(pieces) + 1)
    yield from pieces[:count]
    if count < len(pieces) and outcome.torn_pages and choice.below(2):
        torn = pieces[count]
        cut = choice.below(len(torn.data) + 1)
        if choice.below(2):
            cut = cut // SECTOR_BYTES * SECTOR_BYTES
        if choice.below(2):
            yield WriteFile(torn.number, torn.position, torn.data[:cut])
        else:
            yield WriteFile(torn.number, torn.position + cut, torn.data[cut:])
