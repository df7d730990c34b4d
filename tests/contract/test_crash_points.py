"""The store stopped at hundreds of points and damaged in hundreds of places: the short form of `make crash`."""

import errno
from collections import Counter
from functools import partial

import pytest

from ortoo.common.process.randomness import Randomness
from ortoo.enode.log.checkpoint import decode_slice
from ortoo.enode.log.frame import FrameKind
from ortoo.testing.disks.disk_image import SyncData, SyncFolder, WriteFile
from ortoo.testing.disks.faulty_disk import FaultyDisk
from ortoo.verification.store.crash_points import (
    OUTCOMES,
    CrashReport,
    check_fault,
    check_point,
    enumerate_points,
    images,
    main,
    record,
    silence_logs,
)
from ortoo.verification.store.damage_points import STARTS, DamagePoint, check_damage_point, choose_point
from ortoo.verification.store.damage_points import DamageReport as DamageReport
from ortoo.verification.store.failed_flushes import enumerate_failed_flushes
from ortoo.verification.store.log_fold import frames_written
from ortoo.verification.store.undamaged_store import build_store


def test_a_crash_after_any_operation_loses_nothing_acknowledged() -> None:
    """Every start succeeds, with dense offsets, the same bytes, and the state of a full fold.

    G1, G3, G4, G10, G11.
    """
    report = enumerate_points(2, points_max=100, every=12, variants=2, lives=1, steps=60)
    assert report.points == report.starts == 100
    assert report.torn_tails > 5
    assert report.restarts_after_crash >= 1
    assert not report.broken
    assert report.messages_checked > 15_000


def test_a_crash_at_any_point_of_a_checkpoint_of_several_segments_costs_nothing() -> None:
    """G10: for any part of it that exists, the state is that of a full fold, and the store continues."""
    segment_bytes, report = 4096, CrashReport()
    with silence_logs():
        recording = record(5, steps=30, segment_bytes=segment_bytes)
        points: dict[int, list[int]] = {}
        lengths: Counter[int] = Counter()
        for point, operation in enumerate(recording.operations):
            for header, body in frames_written([operation]).values():
                if header.kind == FrameKind.CHECKPOINT:
                    checkpoint_id = decode_slice(body).checkpoint_id
                    points.setdefault(checkpoint_id, []).append(point)
                    lengths[checkpoint_id] += header.frame_bytes
        longest, length = lengths.most_common(1)[0]
        assert length > 2 * segment_bytes
        for point, image in images(recording, range(points[longest][0], points[longest][-1] + 5)):
            check_point(recording, point, image, point % len(OUTCOMES), report)
    assert report.points > 80
    assert report.torn_tails >= 5


@pytest.mark.parametrize("where", ["sync", "write"])
def test_a_disk_that_fails_at_any_time_costs_nothing_acknowledged(where: str) -> None:
    """After an error of fdatasync, or half a write, nothing is acknowledged; acknowledged data stay (G1, G11).

    After the error the power is cut, and any part of the data in transit may be on the disk or not.
    """
    chance = Randomness(7)
    met = 0
    for _ in range(8):
        fault = (
            partial(FaultyDisk.fail_sync, after=chance.below(150))
            if where == "sync"
            else partial(FaultyDisk.full_after, length=chance.below(400_000), error=errno.EIO)
        )
        met += check_fault(3, fault)
    assert met >= 4


def test_a_run_is_repeated_exactly_by_its_seed() -> None:
    """The same seed gives the same operations, so that a point can be reproduced."""
    with silence_logs():
        first, again = record(5, steps=15), record(5, steps=15)
    assert first.operations == again.operations
    assert first.history == again.history
    assert first.operations != record(6, steps=15).operations


def test_the_workload_is_a_mixed_one() -> None:
    """The recorded run has many queues, offsets, created and deleted topics, retention and refusals."""
    with silence_logs():
        recording = record(1)
    sent = recording.history.sends
    assert len({one.key for one in sent}) >= 40
    assert sum(one.refused for one in sent) > 5
    assert len(recording.history.offsets) > 20
    assert any(wish.value is None for wishes in recording.history.topics.values() for wish in wishes)
    assert any(begin > 0 for _, begins in recording.history.begins for begin in begins.values())
    kinds = [type(one) for one in recording.operations]
    assert min(kinds.count(WriteFile), kinds.count(SyncData)) > 100
    assert kinds.count(SyncFolder) > 20
    assert {header.kind for header, _ in frames_written(recording.operations).values()} == {1, 2, 3, 4, 5, 7}


def test_the_image_at_a_point_is_that_of_the_run() -> None:
    """After all operations the image equals the disk of the run."""
    with silence_logs():
        recording = record(2, steps=10)
    for _, image in images(recording, [len(recording.operations)]):
        assert image.used_bytes() > 10_000


def test_the_command_says_what_it_checked(capsys: pytest.CaptureFixture[str]) -> None:
    """One line with the choices, to repeat the run, and one with the figures."""
    assert main(["--points", "6", "--every", "30", "--steps", "12"]) == 0
    out = capsys.readouterr().out
    assert "'seed': 1" in out
    assert "points=6" in out


def test_damage_anywhere_is_named_or_refused_and_never_served() -> None:
    """G12: flipped bits, zeroed pages, garbage, cut files in any file, after any kind of stop."""
    report = DamageReport()
    with silence_logs():
        pristine = build_store(1 << 20, 3)
        for number in range(150):
            check_damage_point(pristine, choose_point(pristine, 3, number), number, report)
    assert report.places == 150
    assert report.named > 60
    assert report.refused > 0
    assert report.batches_read > 6_000


@pytest.mark.parametrize("start", STARTS)
def test_a_log_cut_at_any_byte_keeps_everything_before_the_cut(start: str) -> None:
    """After fifty random cuts of the last segment, all frames before are kept, offsets stay dense (E-216, G12).

    Where a file beside the log shows that the cut bytes were durable, the cut is reported as damage as well. Without
    caches the log summary remains, which ends inside the last segment.
    """
    report = DamageReport()
    named_at, unnamed_at = [-1], list[int]()
    chance = Randomness(50)
    with silence_logs():
        pristine = build_store(1 << 20, 4)
        last = max(name for name in pristine.files if name.endswith(".seg"))
        written = pristine.end_position - int(last.split(".")[0])
        for number in range(50):
            place = DamagePoint(last, chance.below(written), "cut file", start)
            assert place.is_torn_tail(pristine)
            named = report.named
            check_damage_point(pristine, place, number, report)
            (named_at if report.named > named else unnamed_at).append(place.position)
    assert report.places == 50
    assert report.refused == report.batches_lost == 0
    if start == "without caches":
        assert max(named_at) < min(unnamed_at)
    else:
        assert report.named == 50


def test_a_failed_flush_is_not_believed_by_the_next_start() -> None:
    """Data that are only in the page cache are written again; later power cuts lose no acknowledged data."""
    report = enumerate_failed_flushes(1, runs=5)
    assert report.torn_tails >= 1
    assert report.points >= 60
