"""The bytes behind the end of a log at a start after a crash."""

from pathlib import Path

import pytest

from ortoo.enode.disk.disk import RealDisk
from ortoo.enode.disk.segment_files import SegmentFiles
from ortoo.enode.log.segment import Segment, segment_name
from ortoo.enode.recovery.segment_changes import CHUNK_BYTES, truncate_files, zero_behind
from tests.unit.enode.log.test_scan import frame

BASE = 64 << 20
KEPT = frame(BASE, b"kept")
TORN = frame(BASE + len(KEPT), b"torn")[:130].ljust(192, b"x")
OLD = b"".join(frame(64 + 192 * number, b"old") for number in range(20))
ZEROS = bytes(256)
LARGE = b"z" * (2 * CHUNK_BYTES)

TAILS = {
    "zeros": (ZEROS, 0),
    "torn frame": (TORN + ZEROS, len(TORN + ZEROS)),
    "old frames": (OLD, 0),
    "old frames behind a torn one": (TORN + OLD, len(TORN)),
    "torn frame behind an old one": (OLD + TORN, 0),
    "many torn bytes": (LARGE + ZEROS, len(LARGE)),
    "many torn bytes, then old frames": (LARGE + OLD + LARGE, len(LARGE)),
    "zeros, then old frames": (bytes(CHUNK_BYTES) + OLD, 0),
}


@pytest.mark.parametrize("tail", TAILS)
def test_no_byte_behind_the_end_is_left(tail: str, tmp_path: Path) -> None:
    """The number of truncated bytes is without those of the earlier segment, which were no part of this log's end."""
    data, cut = TAILS[tail]
    path = tmp_path / segment_name(BASE)
    path.write_bytes(KEPT + data)
    with SegmentFiles(RealDisk()) as files:
        segment = Segment(files, tmp_path, BASE, BASE + len(KEPT + data))
        assert zero_behind(segment, BASE + len(KEPT)) == cut
    assert path.read_bytes() == KEPT + bytes(len(data))


@pytest.mark.parametrize("tail", TAILS)
def test_a_truncated_log_holds_nothing_behind_its_end(tail: str, tmp_path: Path) -> None:
    """A log that is truncated to agree with a leader's is no other case."""
    data, _ = TAILS[tail]
    path = tmp_path / segment_name(BASE)
    path.write_bytes(KEPT + data)
    truncate_files(RealDisk(), tmp_path, BASE + len(KEPT))
    assert path.read_bytes() == KEPT + bytes(len(data))
