"""A machine's disk across all processes that run there."""

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from ortoo.common.process.randomness import Randomness
from ortoo.testing.disks.disk_image import (
    KEEP_UNSYNCED,
    CrashOutcome,
    CreateFile,
    DiskImage,
    FileContent,
    Folder,
    Operation,
    SyncData,
    SyncFolder,
    WriteFile,
)
from ortoo.testing.disks.faulty_disk import FaultyDisk
from ortoo.testing.simulation.disk.disk_work import Latency, SimulatedDiskWork
from ortoo.testing.simulation.disk.platter import FaultInjectionDisk, PowerFailure
from ortoo.testing.simulation.kernel.event_loop import VirtualLoop
from ortoo.testing.simulation.kernel.random_streams import happens

CAPACITY_BYTES = 256 << 20
NO_FOLDER = Folder()
INTERRUPTED = 0.8
"""The probability that a stop interrupts a piece of work."""
CUT_AFTER = (1, 1, 1, 1, 2, 2, 3, 5, 8)
"""The number of changes done before the stop, the last one perhaps in part: most work begins with a write."""


class SimulatedDisk(FaultyDisk):
    """The disk as one process sees it: injected faults, and work that takes time."""

    def __init__(
        self,
        platter: FaultInjectionDisk,
        chance: Randomness,
        latency: Latency,
        writes: Callable[[], object] = lambda: None,
    ) -> None:
        """Work on `platter`; `writes` is called when a flush begins."""
        super().__init__(platter)
        self.platter = platter
        self._chance = chance
        self._latency = latency
        self._writes = writes
        self._work: SimulatedDiskWork | None = None

    def work(self, loop: asyncio.AbstractEventLoop) -> SimulatedDiskWork:
        """The worker of the disk while a store is open."""
        self._work = SimulatedDiskWork(loop, self._chance, self._latency, self._writes)
        return self._work

    def stop(self, *, inside_write: bool = False) -> None:
        """The process ends now: a part of each lane's first piece of work may have happened, or all of it.

        With `inside_write`, half of each lane's first write has happened, unless another change comes before it.
        """
        for lane in self._work.lanes if self._work is not None else ():
            if lane.waiting and inside_write:
                self.platter.operations_left = 1
                self.platter.torn = lambda length: length // 2 + 1  # no multiple of a frame's alignment
                _interrupted(lane.waiting[0])
            elif lane.waiting and happens(self._chance, INTERRUPTED):
                self.platter.operations_left = CUT_AFTER[self._chance.below(len(CUT_AFTER))]
                self.platter.torn = lambda length: self._chance.below(length + 1)
                _interrupted(lane.waiting[0])
        self.platter.operations_left = 0


class MachineDisk:
    """The disk of one machine. `open` is for each process that starts there."""

    def __init__(self, chance: Randomness, *, capacity_bytes: int = CAPACITY_BYTES) -> None:
        """An empty disk."""
        self.latency = Latency()
        """The latency of its work."""
        self.applying: Callable[[Operation], object] = lambda operation: None
        """Called before each change by the running process."""
        self.damaged: list[str] = []
        """Damage that the product detects only when it reads, as text."""
        self._chance = chance
        self._capacity_bytes = capacity_bytes
        self._image = DiskImage()
        self._awaited: dict[Callable[[], None], str] = {}
        self._durable_files: dict[Path, tuple[dict[str, int], Mapping[str, FileContent]]] = {}
        self.current: SimulatedDisk = self.open()
        """The disk of the running process."""

    def open(self) -> SimulatedDisk:
        """The disk for a process that starts."""
        platter = FaultInjectionDisk(capacity_bytes=self._capacity_bytes, image=self._image)
        platter.named = partial(self._happens, "name")
        platter.applying = lambda operation: self.applying(operation)
        self.current = SimulatedDisk(platter, self._chance, self.latency, partial(self._happens, "write"))
        return self.current

    def on_process_killed(self) -> None:
        """The process was killed; its written data are in the page cache and reach the disk later."""
        self.current.stop()

    def cut_power(self, outcome: CrashOutcome, *, inside_write: bool = False) -> None:
        """The machine lost power: unsynced changes arrived or not. `inside_write` as in `SimulatedDisk.stop`."""
        self.current.stop(inside_write=inside_write)
        self._image = self._image.after_crash(self._chance, outcome)

    def replace_with_empty(self) -> None:
        """All data are lost."""
        self.current.stop()
        self._image = DiskImage()

    def image(self) -> DiskImage:
        """A copy of all that programs read on it, as of now."""
        return self._image.after_crash(self._chance, KEEP_UNSYNCED)

    def put_back(self, image: DiskImage) -> None:
        """Let it be as it was when a copy was made of it. No process works on it."""
        self.current.stop()
        self._image = image.after_crash(self._chance, KEEP_UNSYNCED)

    def put(self, path: Path, content: bytes) -> None:
        """Give a file this content, durably. No process works on the disk."""
        with contextlib.suppress(KeyError):
            self.remove(path)
        number = self._image.files_made + 1
        self._image.apply(CreateFile(path, number))
        self._image.apply(WriteFile(number, 0, content))
        self._image.apply(SyncData(number))
        self._image.apply(SyncFolder(path.parent))

    def call_at_next(self, work: str, loop: VirtualLoop, patience_s: float, happen: Callable[[], object]) -> None:
        """Call `happen` once: when a "name" changes, when a "write" begins, or after `patience_s`."""

        def once() -> None:
            if self._awaited.pop(once, ""):
                loop.call_soon(happen, context=loop.outside.context)

        self._awaited[once] = work
        loop.call_later(patience_s, once, context=loop.outside.context)

    def _happens(self, work: str) -> None:
        for once in [once for once, awaited in self._awaited.items() if awaited == work]:
            once()

    def flip_bit(self, suffix: str) -> str:
        """Flip one durable bit in a file with this suffix; returns its position as text, empty without such a file."""
        found = [
            (folder / name, number)
            for folder, names in sorted(self._image.folders.items())
            for name, number in sorted(names.current.items())
            if name.endswith(suffix) and self._image.contents[number].durable
        ]
        if not found:
            return ""
        path, number = found[self._chance.below(len(found))]
        content = self._image.contents[number]
        used = len(content.durable.rstrip(b"\0")) or 1
        position, mask = self._chance.below(used), 1 << self._chance.below(8)
        self.flip(path, position, mask)
        where = f"{path}:{position}"
        self.damaged.append(where)
        return where

    def flip(self, path: Path, position: int, mask: int = 1) -> None:
        """Change bits of one byte of a file, durably."""
        content = self._image.contents[self._image.folders[path.parent].current[path.name]]
        for data in (content.durable, content.current):
            if position < len(data):
                data[position] ^= mask

    def remove(self, path: Path) -> None:
        """Remove a file, durably."""
        self._image.remove(path)

    def files(self) -> list[Path]:
        """The files on the disk, by name."""
        return sorted(folder / name for folder, names in self._image.folders.items() for name in names.current)

    def content(self, path: Path) -> bytes:
        """The content of a file as a program reads it."""
        return bytes(self._image.contents[self._image.folders[path.parent].current[path.name]].current)

    def path_of(self, number: int) -> Path | None:
        """The current name of the file with this number; None without one."""
        named = (
            (folder / name, one) for folder, names in self._image.folders.items() for name, one in names.current.items()
        )
        return next((path for path, one in named if one == number), None)

    def durable_files(self, folder: Path) -> Mapping[str, FileContent]:
        """The files that a folder certainly keeps in a power cut, by name: the same mapping until a name changes."""
        names = self._image.folders.get(folder, NO_FOLDER).durable
        known = self._durable_files.get(folder)
        if known is None or known[0] is not names:
            contents = self._image.contents
            known = self._durable_files[folder] = names, {name: contents[number] for name, number in names.items()}
        return known[1]


def _interrupted(work: Callable[[], object]) -> None:
    try:
        work()
    except (PowerFailure, Exception):  # errors of a dead process do not matter
        return
