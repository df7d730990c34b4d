"""A frame is written again beside the log's own writing, and takes nothing away from that."""

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import cast

from ortoo.enode.consensus.log_bytes import LogBytes
from ortoo.enode.disk.disk import RealDisk
from ortoo.enode.index.catalog import Catalog
from ortoo.enode.log.flushing.disk_work import InlineDiskWork
from ortoo.enode.log.segment import Segment, segment_name
from ortoo.enode.store.engine import Engine


async def test_repair_syncs_through_a_descriptor_of_its_own(tmp_path: Path) -> None:
    """A sync that fails is told once to each descriptor, and the log's own flush is to hear of it (B-025)."""
    (tmp_path / segment_name(0)).write_bytes(bytes(256))
    segment, synced = Segment(RealDisk(), tmp_path, 0, 256), []
    own = segment.file
    own.sync_data = lambda: synced.append("own")  # type: ignore[method-assign]
    catalog = Catalog()
    catalog.segments.append(segment)
    work, committer = InlineDiskWork(asyncio.get_running_loop()), SimpleNamespace(next_segments=[])
    engine = SimpleNamespace(catalog=catalog, work=work, committer=committer)
    await LogBytes(cast(Engine, engine)).write_again(64, b"x" * 64)
    assert not synced
    assert segment.read(0, 256) == bytes(64) + b"x" * 64 + bytes(128)
    segment.close()
