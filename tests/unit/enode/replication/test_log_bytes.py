"""Reads of a replica's log for others, and the repair of a frame beside the log's own writes."""

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import cast

from ortoo.enode.disk.disk import RealDisk
from ortoo.enode.disk.segment_files import SegmentFiles
from ortoo.enode.index.catalog import LogCatalog
from ortoo.enode.log.flushing.disk_work import DiskWork
from ortoo.enode.log.flushing.flush_group import FlushEntry, FlushGroup, SegmentPart
from ortoo.enode.log.frame import FrameHeader, FrameKind
from ortoo.enode.log.segment import Segment, segment_name
from ortoo.enode.replication.log_bytes import PART_BYTES, LogBytes
from ortoo.enode.replication.protocol.events import SendFrames
from ortoo.enode.replication.protocol.identity import Incarnation, ReplicaId
from ortoo.enode.store.engine import Engine


async def test_repair_syncs_through_a_descriptor_of_its_own(tmp_path: Path) -> None:
    """A failed sync is reported once to each descriptor, and the log's own flush must get the error."""
    (tmp_path / segment_name(0)).write_bytes(bytes(256))
    files = SegmentFiles(RealDisk())
    segment, synced = Segment(files, tmp_path, 0, 256), []
    own = segment.writer
    own.sync_data = lambda: synced.append("own")  # type: ignore[method-assign]
    catalog = LogCatalog(files)
    catalog.segments.append(segment)
    work, appender = DiskWork(asyncio.get_running_loop()), SimpleNamespace(next_segments=[], durable_position=1 << 63)
    engine = SimpleNamespace(catalog=catalog, work=work, appender=appender)
    await LogBytes(cast(Engine, engine)).rewrite_frame(64, b"x" * 64)
    assert not synced
    assert segment.read(0, 256) == bytes(64) + b"x" * 64 + bytes(128)
    catalog.close()


def test_what_goes_to_the_disk_is_sent_in_pieces_and_not_copied() -> None:
    """Frames come from memory whole, about a megabyte at once, as the written buffers; none from between."""
    payload = bytes(600 << 10)
    log, position, frame = LogBytes(cast(Engine, None)), 0, FrameHeader(length=len(payload)).frame_bytes
    for _ in range(3):
        group = FlushGroup(parts=[SegmentPart(cast(Segment, None), position)])
        for _ in range(3):
            header = FrameHeader(kind=FrameKind.MESSAGES, position=position, length=len(payload))
            group.entries.append(FlushEntry(header))
            group.parts[0].buffers += [header.encoded(), payload]
            position += frame
        group.bytes, group.end_position = 3 * frame, position
        assert log.cache_group(group) == ()
    to, at, sent = Incarnation(ReplicaId(2, "d"), 1), 0, 0
    while content := log.cached_frames(SendFrames(to, 1, at, position)):
        assert all(one is payload for one in content[1::2])
        length = sum(map(len, content))
        assert length % frame == 0
        assert length <= PART_BYTES + 2 * frame
        at, sent = at + length, sent + 1
    assert at == position
    assert 3 < sent <= 6
    assert not log.cached_frames(SendFrames(to, 1, frame, position))
    log.clear_cache()
    assert not log.cached_frames(SendFrames(to, 1, 0, position))
