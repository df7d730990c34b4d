"""The harness finds bugs: each of these, planted into the storage engine, is caught."""

import pytest

from ortoo.verification.store.crash_points import enumerate_points
from ortoo.verification.store.failed_flushes import enumerate_failed_flushes
from ortoo.verification.store.model import StoreViolation
from ortoo.verification.store.workload import SETTINGS
from tests.contract.planted_bugs import BUGS, BUGS_OF_A_FAILING_DISK, BUGS_OF_REUSE, SMALL_SEGMENTS, SOONEST, Plant
from tests.contract.reused_segments import enumerate_reuse

POINTS_MAX = 1500


@pytest.mark.parametrize("plant", BUGS, ids=lambda plant: plant.__name__)
def test_a_planted_bug_is_caught(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stopping after every few operations shows the bug, and the report names the failure."""
    plant(monkeypatch)
    with pytest.raises(StoreViolation, match=BUGS[plant]):
        seed, segment_bytes = SOONEST.get(plant, 1), SMALL_SEGMENTS.get(plant, SETTINGS.segment_bytes)
        enumerate_points(seed, points_max=POINTS_MAX, every=5, variants=3, lives=0, segment_bytes=segment_bytes)


@pytest.mark.parametrize("plant", BUGS_OF_A_FAILING_DISK, ids=lambda plant: plant.__name__)
def test_a_planted_bug_of_a_failing_disk_is_caught(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    """Power cuts after a failed flush and a restart show the bug."""
    plant(monkeypatch)
    with pytest.raises(StoreViolation, match=BUGS_OF_A_FAILING_DISK[plant]):
        enumerate_failed_flushes(1, runs=12)


@pytest.mark.parametrize("plant", BUGS_OF_REUSE, ids=lambda plant: plant.__name__)
def test_a_planted_bug_of_reused_segments_is_caught(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    """Power cuts of a store that overwrites deleted segments show the bug."""
    plant(monkeypatch)
    with pytest.raises(StoreViolation, match=BUGS_OF_REUSE[plant]):
        enumerate_reuse(1, runs=2, every=12)
