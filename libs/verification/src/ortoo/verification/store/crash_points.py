"""Crash points: a recorded run is stopped after every disk operation, and the store starts on the result.

python -m ortoo.verification.store.crash_points --points 2000                    # prints its seed and counts
python -m ortoo.verification.store.crash_points --seed 7 --point 123 --variant 1  # repeats one point

A point is (seed of the run, number of the operation, variant). The variant decides the fate of unsynced changes: all,
none, or any part in any order, torn or whole. On each image the store must start. Nothing acknowledged is lost, nothing
refused is found, no offset is skipped or reused, and no byte changed. The state equals a fold from scratch by another
implementation, with the caches and without. Producers may send again. All of it still holds after more messages and a
clean stop.
"""

import argparse
import contextlib
import logging
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import structlog

from ortoo.common.errors import OrtooError
from ortoo.common.logs.logger import restored_configuration
from ortoo.common.process.randomness import Randomness
from ortoo.common.records.sealed_batch import SealedBatch, crc32c
from ortoo.enode.disk.segment_files import SegmentFiles
from ortoo.enode.log.settings import StoreSettings
from ortoo.enode.recovery.only_copy import recover
from ortoo.enode.store.store import Store
from ortoo.testing.disks.disk_image import KEEP_UNSYNCED, LOSE_UNSYNCED, CrashOutcome, DiskImage, Operation
from ortoo.testing.disks.faulty_disk import FaultyDisk
from ortoo.testing.disks.memory_disk import MemoryDisk
from ortoo.verification.store.log_fold import FoldedState, Frame, fold_from_scratch, frames_written, plain_state_of
from ortoo.verification.store.model import NEVER, SentBatch, StoreHistory, StoreViolation, check, observe
from ortoo.verification.store.workload import FOLDER, NEEDED, SETTINGS, Workload, open_store
from ortoo.verification.time.virtual_clock import EPOCH_MS, VirtualClock

OUTCOMES = (
    CrashOutcome(torn_pages=True, names_in_order=True),
    LOSE_UNSYNCED,
    CrashOutcome(torn_pages=True, names_in_order=False),
    KEEP_UNSYNCED,
    CrashOutcome(torn_pages=False, names_in_order=False),
)
"""The changes that a variant keeps, by its number modulo 5."""
STEPS = 60
LATER_MS = 3_600_000


@dataclass(slots=True)
class Recording:
    """One run, as a list of disk operations."""

    seed: int
    operations: list[Operation]
    history: StoreHistory
    before: DiskImage = field(default_factory=DiskImage)
    """The disk at its beginning."""
    frames_before: dict[int, Frame] = field(default_factory=dict)
    """The frames in the log at the beginning, before retention."""
    name: str = ""
    """Its options on the command line."""
    settings: StoreSettings = SETTINGS
    """The settings of the store."""


@dataclass(slots=True)
class CrashReport:
    """The counts of an enumeration."""

    points: int = 0
    starts: int = 0
    messages_checked: int = 0
    torn_tails: int = 0
    restarts_after_crash: int = 0
    broken: list[str] = field(default_factory=list)
    """Broken promises, when the enumeration continues after them."""


def record(seed: int, steps: int = STEPS, segment_bytes: int = SETTINGS.segment_bytes) -> Recording:
    """Run the workload on an empty disk. Errors: Broken when a promise is broken without any crash."""
    disk, clock = MemoryDisk(record=True), VirtualClock()
    settings = replace(SETTINGS, segment_bytes=segment_bytes)
    workload = Workload(disk, clock, seed, settings=settings)
    try:
        clock.run(lambda: workload.run(steps), limit_s=86_400)
    except OrtooError as error:
        raise StoreViolation(f"--seed {seed} without a crash: {type(error).__name__} {error}") from error
    name = f"--seed {seed} --steps {steps} --segment-bytes {segment_bytes}"
    return Recording(seed, disk.operations, workload.history, name=name, settings=settings)


def images(recording: Recording, points: Sequence[int]) -> Iterator[tuple[int, DiskImage]]:
    """The disk after each of these numbers of operations, ascending; one image, which is changed in place."""
    image = recording.before.after_crash(Randomness(0), KEEP_UNSYNCED)
    done = 0
    for point in points:
        for operation in recording.operations[done:point]:
            image.apply(operation)
        done = point
        yield point, image


def crash_at(recording: Recording, point: int, image: DiskImage, variant: int) -> MemoryDisk:
    """The disk after a crash behind operation `point`."""
    choice = Randomness((recording.seed * 1_000_003 + point) * 101 + variant)
    return MemoryDisk(image=image.after_crash(choice, OUTCOMES[variant % len(OUTCOMES)]))


def check_point(recording: Recording, point: int, image: DiskImage, variant: int, report: CrashReport) -> None:
    """Crash, start, compare. Errors: Broken, naming the point."""
    disk = crash_at(recording, point, image, variant)
    try:
        report.points += 1
        report.torn_tails += _check_state(recording, point, disk)
        clock = VirtualClock(EPOCH_MS + LATER_MS)
        clock.run(lambda: _check_store(recording, point, disk, clock, report), limit_s=3600)
    except (OrtooError, StoreViolation, LookupError, ValueError, OSError) as error:
        raise StoreViolation(
            f"{recording.name} --point {point} --variant {variant}: {type(error).__name__}: {error}"
        ) from error


def _check_state(recording: Recording, point: int, disk: MemoryDisk) -> bool:
    """Compare the enode's state, with and without its caches, with a fold from scratch.

    Returns whether the log ends before a frame that had been written.
    """
    disk.make_folder(FOLDER)
    end_position = 0
    frames = {**recording.frames_before, **frames_written(recording.operations[:point])}
    for without_caches in (False, True):
        if without_caches:
            disk = disk.after_crash(Randomness(0), KEEP_UNSYNCED)
            for name in disk.list(FOLDER):
                if not name.endswith(NEEDED):
                    disk.remove(FOLDER / name)
        found = recover(SegmentFiles(disk), FOLDER, repairs=False)
        if found.catalog.damages or found.skips:
            raise StoreViolation(f"damage is reported although nothing is damaged: {found.catalog.damages}")
        end_position = found.end_position
        expected = fold_from_scratch(frames, end_position).of_known_topics()
        actual = plain_state_of(found.state).of_known_topics()
        for name in FoldedState.__slots__:
            if getattr(actual, name) != getattr(expected, name):
                raise StoreViolation(
                    f"the state's {name} {'without caches ' if without_caches else ''}are "
                    f"{_difference(getattr(actual, name), getattr(expected, name))}"
                )
    return any(position >= end_position for position in frames)


def _difference(actual: dict[object, object], expected: dict[object, object]) -> str:
    keys = [key for key in {**actual, **expected} if actual.get(key) != expected.get(key)]
    return "; ".join(f"{key}: {actual.get(key)} instead of {expected.get(key)}" for key in keys[:3])


async def _check_store(
    recording: Recording, point: int, disk: MemoryDisk, clock: VirtualClock, report: CrashReport
) -> StoreHistory:
    """Start the store, compare, send again and more, stop, start, compare again."""
    store = await open_store(disk, clock, recording.settings)
    report.starts += 1
    found = await observe(store)
    settled = check(recording.history, found, point)
    report.messages_checked += sum(batch.count for one in found.batches.values() for _, batch in one)
    if damages := store.describe().damages:
        raise StoreViolation(f"damage is reported although nothing is damaged: {damages}")
    await _send_again(store, recording.history, settled, point)
    await _send_more(store, settled, found.ranges)
    check(settled, await observe(store), NEVER - 1)
    await store.close()
    store = await open_store(disk, clock, recording.settings)
    check(settled, await observe(store), NEVER - 1)
    await store.close()
    return settled


async def _send_again(store: Store, history: StoreHistory, settled: StoreHistory, point: int) -> None:
    """Let each producer repeat its last acknowledged batch, and then all unanswered ones."""
    last: dict[tuple[int, int, int], list[SentBatch]] = {}
    topics = {topic.topic_id for topic in store.topics()}
    for sent in history.sends:
        if not sent.batch.producer_id or sent.refused or sent.requested_at > point or sent.topic_id not in topics:
            continue
        key = (*sent.key, sent.batch.producer_id)
        if sent.answered_at <= point:
            last[key] = [sent]
        else:
            last.setdefault(key, []).append(sent)
    kept = {(*one.key, one.batch.records): one for one in settled.sends}
    for batches in last.values():
        for sent in batches:
            one = kept[*sent.key, sent.batch.records]
            answer = await store.append(*sent.key, sent.batch)
            if one.first_offset >= 0 and answer.first_offset != one.first_offset:
                raise StoreViolation(
                    f"queue {sent.key}: sequence {sent.batch.first_sequence} was stored at {one.first_offset}, and "
                    f"again at {answer.first_offset}"
                )
            one.refused, one.first_offset = False, answer.first_offset


async def _send_more(store: Store, settled: StoreHistory, ranges: dict[tuple[int, int], tuple[int, int]]) -> None:
    """Send one batch to some queues; it must get the next offset."""
    ends = {row: end for row, (_, end) in ranges.items()}
    for one in settled.sends:
        if not one.refused and one.first_offset >= 0 and one.key in ends:
            ends[one.key] = max(ends[one.key], one.first_offset + one.batch.count)
    for number, key in enumerate(sorted(ends)):
        if number % 5 == 0:
            body = b"after the crash %d" % number
            batch = SealedBatch(body, crc32c(body), 2, len(body))
            answer = await store.append(*key, batch)
            if answer.first_offset != ends[key]:
                raise StoreViolation(f"queue {key}: the next offset is {ends[key]}, given was {answer.first_offset}")
            settled.sends.append(SentBatch(*key, batch, 0, 0, answer.first_offset))


def restart_after_crash(recording: Recording, point: int, image: DiskImage, steps: int = 8) -> Recording:
    """Start on the image of a crash and continue, so that crashes during recovery can be checked.

    Errors: Broken.
    """
    name = f"{recording.name} --life {point}"
    disk = crash_at(recording, point, image, point)
    disk.make_folder(FOLDER)
    before = disk.after_crash(Randomness(0), KEEP_UNSYNCED)
    clock = VirtualClock(EPOCH_MS + LATER_MS)

    async def settle() -> StoreHistory:
        store = await open_store(disk.after_crash(Randomness(0), KEEP_UNSYNCED), clock, recording.settings)
        settled = check(recording.history, await observe(store), point)
        await store.close()
        return settled

    try:
        frames = {**recording.frames_before, **frames_written(recording.operations[:point])}
        end = recover(SegmentFiles(before), FOLDER, repairs=False).end_position
        frames = {position: frame for position, frame in frames.items() if position < end}
        history = clock.run(settle, limit_s=3600)
        again = before.after_crash(Randomness(0), KEEP_UNSYNCED, record=True)
        workload = Workload(again, clock, recording.seed + 50_000 + point, history, settings=recording.settings)
        clock.run(lambda: workload.run(steps), limit_s=86_400)
    except (OrtooError, StoreViolation) as error:
        raise StoreViolation(f"{name}: {type(error).__name__}: {error}") from error
    history, settings = workload.history, recording.settings
    return Recording(recording.seed, again.operations, history, before.image, frames, name, settings)


@dataclass(slots=True)
class CrashEnumeration:
    """Checks points of a run, and counts the results."""

    points_max: int
    every: int = 1
    variants: int = 2
    restarts: int = 2
    go_on: bool = False
    """Record a broken promise and continue, instead of raising it."""
    report: CrashReport = field(default_factory=CrashReport)

    def check(self, recording: Recording) -> None:
        """Check points of a run, and of the runs that begin after some of them. Errors: Broken."""
        self._check(recording, self.variants, self.restarts)

    def _check(self, recording: Recording, variants: int, lives: int) -> None:
        chance = Randomness(recording.seed)
        points = [one for one in range(len(recording.operations) + 1) if chance.below(self.every) == 0]
        reborn = {points[chance.below(len(points))] for _ in range(lives)} if points else set()
        for point, image in images(recording, points):
            for number in range(variants):
                if self.report.points >= self.points_max:
                    return
                self._try(recording, point, image, (point + number) % 10)
            if point in reborn:
                self.report.restarts_after_crash += 1
                try:
                    life = restart_after_crash(recording, point, image)
                except StoreViolation as error:
                    self._note(error)
                else:
                    self._check(life, 1, 0)

    def _try(self, recording: Recording, point: int, image: DiskImage, variant: int) -> None:
        try:
            check_point(recording, point, image, variant, self.report)
        except StoreViolation as error:
            self._note(error)

    def _note(self, error: StoreViolation) -> None:
        if not self.go_on:
            raise error
        self.report.broken.append(str(error))


def enumerate_points(
    seed: int, *, points_max: int, every: int = 1, variants: int = 2, lives: int = 2, steps: int = STEPS,
    segment_bytes: int = SETTINGS.segment_bytes, go_on: bool = False,
) -> CrashReport:  # fmt: skip
    """Check every `every`-th point of runs with `seed` and the seeds after it, until there are `points_max`.

    Errors: Broken at the first broken promise, unless told to `go_on`.
    """
    enumeration = CrashEnumeration(points_max, every, variants, lives, go_on)
    with silence_logs():
        while enumeration.report.points < points_max:
            enumeration.check(record(seed, steps, segment_bytes))
            seed += 1
    return enumeration.report


def check_one(seed: int, steps: int, segment_bytes: int, life: int | None, point: int, variant: int) -> CrashReport:
    """Check one point again, by the options printed for it. Errors: Broken."""
    report = CrashReport()
    with silence_logs():
        recording = record(seed, steps, segment_bytes)
        if life is not None:
            for at, image in images(recording, [life]):
                recording = restart_after_crash(recording, at, image)
        for at, image in images(recording, [point]):
            check_point(recording, at, image, variant, report)
    return report


def check_fault(seed: int, fault: Callable[[FaultyDisk], None], steps: int = STEPS) -> bool:
    """Run the workload on a failing disk, cut the power when the store notices, start again, compare.

    Returns whether the fault was met. Errors: Broken.
    """
    memory, clock = MemoryDisk(record=True), VirtualClock()
    disk = FaultyDisk(memory)
    workload = Workload(memory, clock, seed, through=disk)
    fault(disk)
    is_met = False
    with silence_logs():
        try:
            clock.run(lambda: workload.run(steps), limit_s=86_400)
        except (OrtooError, OSError):
            is_met = True
        point = len(memory.operations)
        recording = Recording(seed, memory.operations, workload.history, name=f"a failing disk, --seed {seed}")
        for at, image in images(recording, [point]):
            for variant in range(len(OUTCOMES)):
                check_point(recording, at, image, variant, CrashReport())
    return is_met


@contextlib.contextmanager
def silence_logs() -> Iterator[None]:
    """Suppress the logs of thousands of stores that start and stop."""
    with restored_configuration():
        structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
        yield


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the enumeration from the command line; 1 when a promise is broken."""
    parser = argparse.ArgumentParser(
        prog="python -m ortoo.verification.store.crash_points", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--points", type=int, default=2000, help="the number of crash points to check")
    parser.add_argument("--seed", type=int, default=1, help="the seed of the first recorded run")
    parser.add_argument("--steps", type=int, default=STEPS, help="the number of steps of a run")
    parser.add_argument("--segment-bytes", type=int, default=SETTINGS.segment_bytes, help="the size of a segment")
    parser.add_argument("--every", type=int, default=1, help="check every Nth point only")
    parser.add_argument("--variants", type=int, default=2, help="the number of outcomes for unsynced bytes")
    parser.add_argument("--point", type=int, help="check this point only")
    parser.add_argument("--life", type=int, help="check the run that begins after a crash at this point")
    parser.add_argument("--go-on", action="store_true", help="list every broken promise instead of the first")
    parser.add_argument("--variant", type=int, default=0, help="the outcome for unsynced bytes at --point")
    chosen = parser.parse_args(arguments)
    say = sys.stdout.write
    say(f"crash points: {vars(chosen)}\n")
    try:
        if chosen.point is not None:
            report = check_one(
                chosen.seed, chosen.steps, chosen.segment_bytes, chosen.life, chosen.point, chosen.variant
            )
        else:
            report = enumerate_points(
                chosen.seed, points_max=chosen.points, every=chosen.every, variants=chosen.variants,
                steps=chosen.steps, segment_bytes=chosen.segment_bytes, go_on=chosen.go_on,
            )  # fmt: skip
    except StoreViolation as error:
        say(f"BROKEN {error}\n")
        return 1
    if report.broken:
        say("\n".join(f"BROKEN {one}" for one in report.broken) + f"\n{len(report.broken)} of {report.points} points\n")
        return 1
    say(f"{report}: every start succeeded, nothing acknowledged was lost, offsets dense, state as from scratch\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
