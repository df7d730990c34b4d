"""Zeros that are written behind the end of a log, so that a sync changes no metadata."""

import errno
import os
from pathlib import Path

import pytest

from ortoo.enode.disk.disk import ZEROED_BYTES_MAX, ZEROS, Buffer, RealDisk, RealFile
from ortoo.enode.disk.segment_files import SegmentFiles
from ortoo.enode.log.flushing.flush_group import FlushGroup, SegmentPart
from ortoo.enode.log.segment import Segment


def test_zeros_are_written_once_for_many_small_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They end where the file ends, and leave what is stored before them."""
    size, frame, lengths = len(ZEROS) + 100_000, b"x" * 1_000, list[int]()
    write = RealFile.write

    def count(file: RealFile, position: int, buffers: tuple[Buffer, ...]) -> int:
        lengths.append(write(file, position, buffers))
        return lengths[-1]

    file = RealDisk().open(tmp_path / "segment", create=True)
    file.allocate(size)
    monkeypatch.setattr(RealFile, "write", count)
    for position in range(0, size - len(frame), len(frame)):
        file.write(position, (frame,))
        file.zero_ahead(position + len(frame))
    zeros = [length for length in lengths if length != len(frame)]
    assert zeros[0] == len(ZEROS)
    assert len(zeros) <= 3
    assert file.size_bytes() == size
    assert file.read(0, size).rstrip(b"\0") == frame * (len(lengths) - len(zeros))
    file.close()


def test_few_zeros_are_written_between_large_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A mark or a commit behind each large group would otherwise double the bytes of a bulk load."""
    large, small, rounds, written = len(ZEROS), 192, 8, list[int]()
    write = RealFile.write

    def count(file: RealFile, position: int, buffers: tuple[Buffer, ...]) -> int:
        written.append(write(file, position, buffers))
        return written[-1]

    monkeypatch.setattr(RealFile, "write", count)
    with SegmentFiles(RealDisk()) as files:
        segment = Segment(files, tmp_path, 0, 16 << 20)
        segment.create()
        for position in range(0, rounds * (large + small), large + small):
            FlushGroup([SegmentPart(segment, position, [bytes(large)])]).write()
            FlushGroup([SegmentPart(segment, position + large, [bytes(small)])]).write()
    assert sum(written) == rounds * (large + small + ZEROED_BYTES_MAX)


@pytest.mark.parametrize(("length", "zeroed"), [(1_000, [1_000]), (ZEROED_BYTES_MAX + 1, [])])
def test_large_groups_are_followed_by_no_zeros(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, length: int, zeroed: list[int]
) -> None:
    """They would double the bytes that a bulk load writes."""
    found = list[int]()
    monkeypatch.setattr(RealFile, "zero_ahead", lambda _, position: found.append(position))
    with SegmentFiles(RealDisk()) as files:
        segment = Segment(files, tmp_path, 0, 1 << 20)
        segment.create()
        FlushGroup([SegmentPart(segment, 0, [bytes(length)])]).write()
        segment.stop_writing()
    assert found == zeroed


def test_a_reused_segment_gets_no_zeros(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its blocks are written already; a start after a crash overwrites the old bytes."""
    found: list[int] = []
    monkeypatch.setattr(RealFile, "zero_ahead", lambda _, position: found.append(position))
    (tmp_path / f"{0:020}.seg").write_bytes(b"o" * (1 << 20))
    with SegmentFiles(RealDisk()) as files:
        segment = Segment(files, tmp_path, 0, 1 << 20)
        segment.create(is_reused=True)
        FlushGroup([SegmentPart(segment, 0, [b"new"])]).write()
        segment.stop_writing()
        assert segment.read(0, 1 << 21) == b"new" + b"o" * ((1 << 20) - 3)
    assert found == []


def test_the_end_of_a_full_segment_is_followed_by_no_zeros(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rest of its file is truncated."""
    found = list[int]()
    monkeypatch.setattr(RealFile, "zero_ahead", lambda _, position: found.append(position))
    with SegmentFiles(RealDisk()) as files:
        segment = Segment(files, tmp_path, 0, 1 << 20)
        segment.create()
        segment.end = 1_000
        FlushGroup([SegmentPart(segment, 0, [bytes(1_000)])]).write()
    assert not found


@pytest.mark.parametrize(("error", "fails"), [(errno.ENOSPC, False), (errno.EDQUOT, False), (errno.EIO, True)])
def test_a_disk_without_space_for_zeros_takes_the_frames(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: int, *, fails: bool
) -> None:
    """A sparse file, or one that is copied on write, needs space for the zeros too. Frames need less of it."""
    write = os.pwritev

    def refuse_zeros(descriptor: int, buffers: list[Buffer], position: int) -> int:
        if not any(map(any, buffers)):
            raise OSError(error, os.strerror(error))
        return write(descriptor, buffers, position)

    with SegmentFiles(RealDisk()) as files:
        segment = Segment(files, tmp_path, 0, 1 << 20)
        segment.create()
        monkeypatch.setattr(os, "pwritev", refuse_zeros)
        group = FlushGroup([SegmentPart(segment, 0, [b"x" * 1_000])])
        if fails:
            with pytest.raises(OSError, match=os.strerror(error)):
                group.write()
        else:
            group.write()
        segment.stop_writing()
