"""Damage points: one place of a closed store is damaged, the store is started, and everything is read.

python -m ortoo.verification.store.damage_points --megabytes 200 --places 500
python -m ortoo.verification.store.damage_points --seed 1 --place 17     # repeats one place

A start must end in "running, damage named" or "refused, naming the file". Readable messages are unchanged. Unreadable
ones answer DATA_LOSS and are named with their file and position. No offset is reused.
"""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from ortoo.common.errors import DataLoss, OrtooError
from ortoo.common.process.randomness import Randomness
from ortoo.common.records.sealed_batch import SealedBatch, crc32c
from ortoo.enode.log.frame import HEADER_BYTES
from ortoo.enode.log.segment import SUFFIX
from ortoo.enode.store.store import Store
from ortoo.testing.disks.disk_image import PAGE_BYTES, DiskImage, FileContent, Folder
from ortoo.testing.disks.memory_disk import MemoryDisk
from ortoo.verification.store.crash_points import silence_logs
from ortoo.verification.store.model import StoreViolation
from ortoo.verification.store.undamaged_store import GROUP, TOPICS, UndamagedStore, build_store, open_store
from ortoo.verification.store.workload import FOLDER, NEEDED
from ortoo.verification.time.virtual_clock import EPOCH_MS, VirtualClock

MIB = 1 << 20
KINDS = {"flipped bit": 1, "zeroed page": PAGE_BYTES, "garbage": 16, "cut file": 1 << 40}
"""Kinds of damage to a file, and the approximate number of bytes."""
STARTS = ("after a clean stop", "after a kill", "without caches")


@dataclass(frozen=True, slots=True)
class DamagePoint:
    """The damage, and the condition in which the store is started."""

    file: str
    position_in_file: int
    kind: str
    start: str

    @property
    def base(self) -> int:
        """The position in the log at which a segment file begins."""
        return int(self.file.split(".")[0])

    @property
    def position(self) -> int:
        """The position in the log where the damage begins."""
        return self.base + (
            self.position_in_file // PAGE_BYTES * PAGE_BYTES if self.kind == "zeroed page" else self.position_in_file
        )

    @property
    def end_position(self) -> int:
        """The position in the log where the damage ends."""
        return (
            self.position + {"flipped bit": 1, "zeroed page": PAGE_BYTES, "garbage": 16, "cut file": 1 << 40}[self.kind]
        )

    def is_known_cut(self, pristine: UndamagedStore) -> bool:
        """Whether the last file was truncated and another file records its length."""
        last = max(name for name in pristine.files if name.endswith(SUFFIX))
        is_cut = self.kind == "cut file" and self.file == last and self.position < pristine.end_position
        return is_cut and (self.start == STARTS[0] or (self.start == STARTS[1] and "durable" in pristine.files))

    def is_torn_tail(self, pristine: UndamagedStore) -> bool:
        """Whether a crash can leave this: only the end of the log is damaged, and no durable mark records it.

        Then the log ends before the damage, and later messages count as never acknowledged. A truncated last file
        counts too, because the log continues at its end. But another file with its length must then cause named damage.
        """
        last = max(name for name in pristine.files if name.endswith(SUFFIX))
        if self.kind == "cut file" and self.file == last:
            return True
        if "durable" in pristine.files and self.start == STARTS[1]:
            return False
        return (
            self.file == last and self.start != STARTS[0] and self.end_position > pristine.end_position - HEADER_BYTES
        )


@dataclass(slots=True)
class DamageReport:
    """The results of all places."""

    places: int = 0
    unharmed: int = 0
    named: int = 0
    refused: int = 0
    batches_lost: int = 0
    batches_read: int = 0


def choose_point(pristine: UndamagedStore, seed: int, number: int) -> DamagePoint:
    """The place with this number: mostly in the segments, by size, and every fifth in any file."""
    chance = Randomness(seed * 1_000_003 + number)
    names = sorted(pristine.files)
    if number % 5:
        names = [name for name in names if name.endswith(SUFFIX)]
        at = chance.below(sum(len(pristine.files[name]) for name in names))
        for name in names:
            if at < len(pristine.files[name]):
                break
            at -= len(pristine.files[name])
        else:
            raise AssertionError
    else:
        name = names[chance.below(len(names))]
        at = chance.below(len(pristine.files[name]))
    kind = list(KINDS)[chance.below(3) if chance.below(10) else 3]
    return DamagePoint(name, at, kind, STARTS[chance.below(3)])


def damaged_disk(pristine: UndamagedStore, place: DamagePoint, seed: int) -> MemoryDisk:
    """A disk with the store, damaged in that place."""
    image = DiskImage()
    image.folders[FOLDER] = folder = Folder()
    for one in FOLDER.parents:
        image.folders[one] = Folder()
    last = max(name for name in pristine.files if name.endswith(SUFFIX))
    for number, (name, data) in enumerate(sorted(pristine.files.items()), 1):
        if name == "clean" and place.start != STARTS[0]:
            continue
        if not name.endswith(NEEDED) and place.start == STARTS[2]:
            continue
        if name == place.file:
            content = FileContent(_damage(data, place, seed))
        elif name == last or not name.endswith(SUFFIX):
            content = FileContent(data)
        else:
            shared = pristine.shared.get(name)
            if shared is None or shared.pending:
                shared = pristine.shared[name] = FileContent(data)
            content = shared
        folder.current[name] = folder.durable[name] = number
        image.contents[number] = content
        image.files_made = number
    return MemoryDisk(image=image)


def _damage(data: bytes, place: DamagePoint, seed: int) -> bytes:
    changed = bytearray(data)
    if place.kind == "flipped bit":
        changed[place.position_in_file] ^= 1 << seed % 8
    elif place.kind == "zeroed page":
        start = place.position_in_file // PAGE_BYTES * PAGE_BYTES
        changed[start : start + PAGE_BYTES] = bytes(len(changed[start : start + PAGE_BYTES]))
    elif place.kind == "garbage":
        changed[place.position_in_file : place.position_in_file + 16] = bytes(
            Randomness(seed).below(256) for _ in changed[place.position_in_file : place.position_in_file + 16]
        )
    else:
        del changed[place.position_in_file :]
    return bytes(changed)


def check_damage_point(pristine: UndamagedStore, point: DamagePoint, seed: int, report: DamageReport) -> None:
    """Damage, start, read everything. Errors: Broken."""
    report.places += 1
    clock = VirtualClock(EPOCH_MS + 1_000_000)
    disk = damaged_disk(pristine, point, seed)
    try:
        clock.run(lambda: _check(pristine, point, disk, clock, report), limit_s=3600)
    except Exception as error:
        raise StoreViolation(f"{point}: {type(error).__name__}: {error}") from error


async def _check(
    pristine: UndamagedStore, place: DamagePoint, disk: MemoryDisk, clock: VirtualClock, report: DamageReport
) -> None:
    try:
        store = await open_store(disk, clock, pristine.settings)
    except DataLoss as error:
        if place.file not in error.message:
            raise StoreViolation(f"the start was refused without naming the file: {error.message}") from error
        report.refused += 1
        return
    torn_from = place.position if place.is_torn_tail(pristine) else 1 << 62
    lost = await _read_everything(store, pristine, torn_from, report)
    known = {topic.topic_id for topic in store.topics()}
    for (topic_id, queue_id), (offset, end_position) in pristine.offsets.items():
        if topic_id not in known or end_position > torn_from:
            continue
        if store.offsets.of(topic_id, GROUP).get(queue_id) != offset:
            lost.append(f"the offset of {(topic_id, queue_id)}")
    lost += [f"topic {topic_id}" for topic_id in range(1, TOPICS + 1) if topic_id not in known]
    damages = store.describe().damages
    is_named = any(_names(one.file, one.position, one.length_bytes, place) for one in damages)
    if lost:
        if not is_named:
            raise StoreViolation(f"{lost[:3]} and {len(lost)} in all are lost without a named damage: {damages}")
        report.batches_lost += len(lost)
    if place.is_known_cut(pristine) and not is_named:
        raise StoreViolation(f"the last file was truncated, and no damage is named: {damages}")
    if damages:
        report.named += 1
    else:
        report.unharmed += 1
    await _append_to_all(store, pristine, torn_from)
    await store.close()


async def _append_to_all(store: Store, pristine: UndamagedStore, torn_from: int) -> None:
    """Append to every queue: no offset is reused, and behind a torn tail none is skipped."""
    known = {topic.topic_id for topic in store.topics()}
    body = b"after the damage"
    for key, batches in pristine.batches.items():
        if key[0] in known:
            kept = [one.end_offset for one in batches if one.end_position <= torn_from]
            end = kept[-1] if kept else 0
            answer = await store.append(*key, SealedBatch(body, crc32c(body), 1, len(body)))
            if answer.first_offset < end:
                raise StoreViolation(
                    f"queue {key}: offset {answer.first_offset} is given again, {end} were acknowledged"
                )
            if len(kept) < len(batches) and answer.first_offset != end:
                raise StoreViolation(f"queue {key}: offset {answer.first_offset} follows on {end}, behind a torn tail")
            again = await store.fetch(*key, answer.first_offset)
            if again.batches[0].batch.records != body:
                raise StoreViolation(f"queue {key}: the batch just appended at {answer.first_offset} differs")


def _names(file: str, position: int, length: int, place: DamagePoint) -> bool:
    """Whether a named damage covers this place: the same file, and not wholly before it."""
    if not place.file.endswith(SUFFIX):
        return True
    return file == place.file and position < place.end_position and place.position < position + length


async def _read_everything(store: Store, pristine: UndamagedStore, torn_from: int, report: DamageReport) -> list[str]:
    """Read each queue, continuing after DATA_LOSS; returns the losses. Errors: Broken for a wrong byte."""
    lost: list[str] = []
    known = {topic.topic_id for topic in store.topics()}
    for key, expected in pristine.batches.items():
        if key[0] not in known:
            continue
        by_offset = {one.first_offset: one.batch for one in expected}
        kept = [one for one in expected if one.end_position <= torn_from]
        end = kept[-1].end_offset if kept else 0
        found: set[int] = set()
        row = next(row for row in store.describe_queues(key[0]) if row.queue_id == key[1])
        if row.end_offset < end:
            raise StoreViolation(f"queue {key} ends at {row.end_offset}, {end} were acknowledged")
        offset = row.begin_offset
        while offset < row.end_offset:
            try:
                fetched = await store.fetch(*key, offset, bytes_max=4 * MIB)
            except DataLoss as error:
                if error.end_offset <= offset or str(error.end_offset) not in error.message:
                    raise StoreViolation(f"no offset to continue at: {error.message}") from error
                offset = error.end_offset
                continue
            if not fetched.batches:
                raise StoreViolation(f"queue {key}: taken for empty at offset {offset}")
            for one in fetched.batches:
                if by_offset.get(one.first_offset) != one.batch:
                    raise StoreViolation(f"queue {key}: wrong bytes are served at offset {one.first_offset}")
                found.add(one.first_offset)
            offset = fetched.next_offset
        report.batches_read += len(found)
        lost += [f"offset {one.first_offset} of {key}" for one in kept if one.first_offset not in found]
    return lost


def main(arguments: Sequence[str] | None = None) -> int:
    """Run from the command line; 1 when a promise is broken."""
    parser = argparse.ArgumentParser(
        prog="python -m ortoo.verification.store.damage_points", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--megabytes", type=int, default=200, help="size of the store")
    parser.add_argument("--places", type=int, default=500, help="how many places to damage, one at a time")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--place", type=int, help="check this place only")
    parser.add_argument("--go-on", action="store_true", help="list every broken promise instead of the first")
    chosen = parser.parse_args(arguments)
    sys.stdout.write(f"damage points: {vars(chosen)}\n")
    report, broken = DamageReport(), 0
    with silence_logs():
        pristine = build_store(chosen.megabytes * MIB, chosen.seed)
        numbers = [chosen.place] if chosen.place is not None else range(chosen.places)
        for number in numbers:
            try:
                check_damage_point(pristine, choose_point(pristine, chosen.seed, number), chosen.seed + number, report)
            except (StoreViolation, OrtooError) as error:
                broken += 1
                sys.stdout.write(f"BROKEN --seed {chosen.seed} --place {number}: {error}\n")
                if not chosen.go_on:
                    break
    sys.stdout.write(f"{report}, broken promises: {broken}\n")
    return min(broken, 1)


if __name__ == "__main__":
    sys.exit(main())
