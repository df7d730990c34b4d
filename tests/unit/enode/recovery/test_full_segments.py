"""Opening a replica's log whose full segment has no end mark.

An earlier version wrote such logs: it took a segment that was filled by copied frames for ended after a clean stop.
"""

from pathlib import Path

import pytest

from ortoo.common.process.clock import SystemClock
from ortoo.enode.disk.disk import RealDisk
from ortoo.enode.disk.identity import StoreIdentity, write_identity
from ortoo.enode.log.copies.frame_copies import frames_in
from ortoo.enode.log.frame import FrameKind
from ortoo.enode.log.segment import segment_name
from ortoo.enode.replication.log_opening import open_replicated_log
from ortoo.enode.replication.protocol.identity import Tail
from ortoo.enode.replication.replicated_log import ReplicatedLog
from tests.contract.one_store import SETTINGS
from tests.unit.enode.recovery.test_opening import KEPT, Written, log

__all__ = ["log"]


IDENTITY = StoreIdentity("c", "e", "set", 1)


async def opened(folder: Path) -> ReplicatedLog:
    """The log of a replica of three."""
    return await open_replicated_log(
        folder,
        identity=IDENTITY,
        settings=SETTINGS,
        disk=RealDisk(),
        clock=SystemClock(),
        stored=KEPT,
        begin_under_another_id=lambda: None,
    )


@pytest.mark.parametrize("number", range(1, 6))
async def test_a_replica_reads_on_behind_a_full_segment_without_an_end_mark(
    log: Written, tmp_path: Path, number: int
) -> None:
    """The next segment begins where it ends, so no frame that the replica confirmed is left out."""
    write_identity(RealDisk(), tmp_path, IDENTITY)
    log.put(tmp_path)
    end, at = len(log.content), log.places[number]
    (tmp_path / segment_name(0)).write_bytes(log.content[:at])
    (tmp_path / segment_name(at)).write_bytes(log.content[at:] + bytes(1 << 16))
    for _ in range(2):
        found = await opened(tmp_path)
        appender, catalog = found.engine.appender, found.engine.catalog
        assert (found.summary.tail, found.former_end) == (Tail(2, end), 0)
        found.commit(end)
        assert [(one.base, one.end) for one in catalog.segments] == [(0, at), (at, None)]
        assert not appender.next_segments
        log.frame(FrameKind.MARK, epoch=2)
        await found.write(end, list(frames_in(bytes(log.content[end:]), end)))
        await appender.wait_idle()
        end = len(log.content)
        await found.close()
        assert (tmp_path / segment_name(at)).read_bytes().startswith(log.content[at:])
