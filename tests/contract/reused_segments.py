"""Runs of a store that overwrites the files of deleted segments, while clients forge frames and readers keep files.

The run of a seed is recorded twice. The first run shows which file becomes which later segment. In the second run,
every other of these segments gets bodies with whole frames. Their positions are those that they would have in the later
segment. A store that overwrites such a file reads these frames after a crash.
"""

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise

from ortoo.common.errors import OrtooError
from ortoo.common.records.sealed_batch import SealedBatch, crc32c
from ortoo.enode.disk.disk import File
from ortoo.enode.log.frame import ALIGNMENT_BYTES, HEADER_BYTES, FrameHeader, FrameKind
from ortoo.enode.log.segment import SUFFIX, segment_bases, segment_name
from ortoo.testing.disks.disk_image import DiskImage, Operation, RenameFile, WriteFile
from ortoo.testing.disks.memory_disk import MemoryDisk
from ortoo.verification.store.crash_points import CrashEnumeration, CrashReport, Recording, silence_logs
from ortoo.verification.store.log_fold import frames_written
from ortoo.verification.store.model import StoreViolation
from ortoo.verification.store.workload import FOLDER, SETTINGS, TOPICS, Workload
from ortoo.verification.time.virtual_clock import VirtualClock

REUSE_SETTINGS = replace(SETTINGS, segment_bytes=4 << 10, retention_bytes=16 << 10, retention_interval_ms=200)
STEPS = 60
FORGED_PAYLOAD = b"forged".ljust(ALIGNMENT_BYTES, b"!")
FORGED_BYTES = HEADER_BYTES + len(FORGED_PAYLOAD)
WATCHED_STEPS = 8
"""The number of steps for which a reader keeps a file open."""


@dataclass(slots=True)
class ReuseReport:
    """The counts of some runs."""

    crashes: CrashReport = field(default_factory=CrashReport)
    reused: int = 0
    """Segments that overwrote an earlier one."""
    forged: int = 0
    """Bodies with frames."""
    watched: int = 0
    """Files whose segments were deleted while a reader had them open."""


class ReuseWorkload(Workload):
    """A workload with forged bodies, beside which a reader, such as a backup, keeps files of the log open."""

    def __init__(self, disk: MemoryDisk, clock: VirtualClock, seed: int, forged: Mapping[int, bytes]) -> None:
        """The n-th batch gets the body `forged[n]`, which is as long as the one that it replaces."""
        super().__init__(disk, clock, seed, settings=REUSE_SETTINGS)
        self.watched = 0
        self._forged = forged
        self._watched: tuple[str, File, bytes] | None = None
        self._steps = 0

    def _batch(self, length: int = 0, producer_id: int = 0, first_sequence: int = 0) -> SealedBatch:
        batch = super()._batch(length, producer_id, first_sequence)
        body = self._forged.get(self._serial, batch.records)
        return replace(batch, records=body, records_crc32c=crc32c(body))

    async def _burst(self) -> None:
        """Send, and let retention delete what is too much."""
        await super()._burst()
        await self._clock.sleep(0.02)

    async def _long_pause(self) -> None:
        """Never: without messages, the spares are removed."""
        await self._pause()

    async def _restart(self) -> None:
        """Restart in a few runs only, because another process does not use the files of this one."""
        if self._seed % 4 == 0:
            await super()._restart()

    def _note_begins(self) -> None:
        super()._note_begins()
        self._steps += 1
        if self._steps % WATCHED_STEPS == 0:
            self._end_watch()
            bases = segment_bases(self._disk.list(FOLDER))
            if len(bases) < 2:
                return
            begin, end = bases[:2]
            file = self._disk.open(FOLDER / segment_name(begin), writable=False)
            self._watched = segment_name(begin), file, file.read(0, end - begin)

    def _end_watch(self) -> None:
        if self._watched is not None:
            name, file, content = self._watched
            self.watched += name not in self._disk.list(FOLDER)
            if file.read(0, len(content)) != content:
                raise StoreViolation(f"the bytes of {name} changed under a reader")
            file.close()


def record_reuse(seed: int, report: ReuseReport) -> Recording:
    """The run of a seed with forged bodies. Errors: StoreViolation."""
    return _record(seed, _forged_bodies(_record(seed, {}, ReuseReport())), report)


def _record(seed: int, forged: Mapping[int, bytes], report: ReuseReport) -> Recording:
    disk, clock = MemoryDisk(record=True), VirtualClock()
    workload = ReuseWorkload(disk, clock, seed, forged)
    try:
        clock.run(lambda: workload.run(STEPS), limit_s=86_400)
    except OrtooError as error:
        raise StoreViolation(f"reuse, --seed {seed} without a crash: {type(error).__name__} {error}") from error
    check_names(disk.operations)
    report.reused += sum(len(bases) - 1 for bases in _bases_of_files(disk.operations).values())
    report.forged += len(forged)
    report.watched += workload.watched
    name = f"reuse, --seed {seed}"
    return Recording(seed, disk.operations, workload.history, name=name, settings=REUSE_SETTINGS)


def _bases_of_files(operations: list[Operation]) -> dict[int, list[int]]:
    """The positions of the segments that each file was, in order."""
    image, found = DiskImage(), dict[int, list[int]]()
    for operation in operations:
        image.apply(operation)
        if isinstance(operation, RenameFile) and operation.target.name.endswith(SUFFIX):
            number = image.number_of(operation.target)
            assert number is not None
            found.setdefault(number, []).append(int(operation.target.stem))
    return found


def check_names(operations: list[Operation]) -> None:
    """A segment is written only after its name is durable, and its earlier names are gone. Errors: StoreViolation.

    A power cut shows this rarely. The index file of the previous segment is written next, and its folder is synced
    before the append is acknowledged.
    """
    image = DiskImage()
    for operation in operations:
        image.apply(operation)
        folder = image.folders.get(FOLDER)
        if isinstance(operation, WriteFile) and folder is not None:
            now, durable = (
                [name for name, number in names.items() if number == operation.number]
                for names in (folder.current, folder.durable)
            )
            if now != durable and now[0].endswith(SUFFIX):
                raise StoreViolation(f"{now[0]} is written while the durable names of its file are {durable}")


def _forged_bodies(recording: Recording) -> dict[int, bytes]:
    """Bodies for some batches of the run, by the number of the batch.

    They lie in every other segment whose file is a later segment.
    """
    files = _bases_of_files(recording.operations).values()
    starts = sorted({0, *(base for bases in files for base in bases)})
    later = {base: following for bases in files for base, following in pairwise(bases)}
    attacked = set(sorted(later)[::2])
    forged: dict[int, bytes] = {}
    for header, body in frames_written(recording.operations).values():
        base = starts[bisect_right(starts, header.position) - 1]
        head = body.split(b"m")[0]  # b"<seed>/<number of the batch>/"
        is_plain = header.kind == FrameKind.MESSAGES and not header.prefix_length and head.count(b"/") == 2
        if is_plain and base in attacked and len(body) > 2 * FORGED_BYTES:
            forged[int(head.split(b"/")[1])] = _forged_body(header, head, len(body), later[base] - base)
    return forged


def _forged_body(header: FrameHeader, head: bytes, length: int, moved: int) -> bytes:
    """A body of frames that are whole where the log continues `moved` bytes behind the position of `header`."""
    body = head.ljust(ALIGNMENT_BYTES, b"m")
    while len(body) + FORGED_BYTES <= length:
        position = header.position + HEADER_BYTES + len(body) + moved
        frame = FrameHeader(
            kind=FrameKind.MESSAGES, position=position, durable_below=position, leader_epoch=header.leader_epoch + 9,
            store_open=header.store_open + 9, length=len(FORGED_PAYLOAD), payload_crc=crc32c(FORGED_PAYLOAD),
            topic_id=min(TOPICS), item_count=1, first_offset=1_000_000, stored_at_ms=header.stored_at_ms,
        )  # fmt: skip
        body += frame.encoded() + FORGED_PAYLOAD
    return body.ljust(length, b"m")


def enumerate_reuse(seed: int, *, runs: int, every: int, restarts: int = 0) -> ReuseReport:
    """Stop runs after every few operations, as the enumeration of other runs does. Errors: StoreViolation."""
    enumeration = CrashEnumeration(points_max=1 << 30, every=every, variants=1, restarts=restarts)
    report = ReuseReport(enumeration.report)
    with silence_logs():
        for number in range(seed, seed + runs):
            enumeration.check(record_reuse(number, report))
    return report
