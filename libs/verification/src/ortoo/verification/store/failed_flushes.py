"""Failed flushes: a store starts again on a disk whose cache shows lost writes, and then the power is cut."""

from ortoo.common.errors import OrtooError
from ortoo.common.process.randomness import Randomness
from ortoo.enode.disk.segment_files import SegmentFiles
from ortoo.enode.log.segment import SUFFIX
from ortoo.enode.recovery.only_copy import recover
from ortoo.testing.disks.disk_image import KEEP_UNSYNCED, SyncData
from ortoo.testing.disks.faulty_disk import FaultyDisk
from ortoo.testing.disks.memory_disk import MemoryDisk
from ortoo.verification.store.crash_points import OUTCOMES, STEPS, CrashReport, Recording, check_point, silence_logs
from ortoo.verification.store.log_fold import frames_written
from ortoo.verification.store.model import StoreHistory, StoreViolation, check, observe
from ortoo.verification.store.workload import FOLDER, Workload, open_store
from ortoo.verification.time.virtual_clock import VirtualClock


def enumerate_failed_flushes(seed: int, *, runs: int, steps: int = STEPS) -> CrashReport:
    """Let one flush of each run fail, restart on the same disk, whose cache still shows it, and cut the power.

    The power is cut at any time after the restarted store first synced its log: from then it promises what it found.
    Errors: Broken.
    """
    report = CrashReport()
    with silence_logs():
        for number in range(runs):
            _check_failed_flush(seed + number, 3 + 5 * number, steps, report)
    return report


def _check_failed_flush(seed: int, good_syncs: int, steps: int, report: CrashReport) -> None:
    memory, clock = MemoryDisk(record=True), VirtualClock()
    disk = FaultyDisk(memory)
    first = Workload(memory, clock, seed, through=disk)
    disk.fail_sync(after=good_syncs)
    try:
        clock.run(lambda: first.run(steps), limit_s=86_400)
    except (OrtooError, OSError, ExceptionGroup):
        report.torn_tails += 1
    point = len(memory.operations)
    disk.heal()
    frames = frames_written(memory.operations)
    image = MemoryDisk.replayed(memory.operations)
    name = f"a failed flush, --seed {seed}"

    async def settle() -> StoreHistory:
        store = await open_store(MemoryDisk(image=image.image.after_crash(Randomness(0), KEEP_UNSYNCED)), clock)
        settled = check(first.history, await observe(store), point)
        await store.close()
        return settled

    try:
        history = clock.run(settle, limit_s=3600)
        again = MemoryDisk(record=True, image=MemoryDisk.replayed(memory.operations).image)
        left = MemoryDisk(image=image.image.after_crash(Randomness(0), KEEP_UNSYNCED))
        end = recover(SegmentFiles(left), FOLDER).end_position
        second = Workload(again, clock, seed + 50_000, history)
        clock.run(lambda: second.run(8), limit_s=86_400)
    except (OrtooError, StoreViolation) as error:
        raise StoreViolation(f"{name}: {type(error).__name__}: {error}") from error
    kept = {position: frame for position, frame in frames.items() if position < end}
    recording = Recording(seed, again.operations, second.history, image.image, kept, name)
    live = MemoryDisk.replayed(memory.operations).image
    is_synced = False
    for at, operation in enumerate(again.operations, 1):
        live.apply(operation)
        segments = {number for name, number in live.folders[FOLDER].current.items() if name.endswith(SUFFIX)}
        is_synced = is_synced or (isinstance(operation, SyncData) and operation.number in segments)
        if is_synced and at % 4 == 0:
            check_point(recording, at, live, at % len(OUTCOMES), report)
