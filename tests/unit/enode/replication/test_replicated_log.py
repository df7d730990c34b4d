"""The log of a replica that is emptied and restarts at another position."""

import asyncio
import contextlib
import errno
from dataclasses import replace
from pathlib import Path

import pytest

from ortoo.common.process.randomness import Randomness
from ortoo.enode.disk.atomic_files import RESERVE_BYTES, RESERVE_NAME, read_file
from ortoo.enode.disk.disk import NoDescriptor
from ortoo.enode.disk.identity import StoreIdentity
from ortoo.enode.log.checkpoint import CheckpointSlice
from ortoo.enode.log.copies.frame_copies import frames_in, make_entry
from ortoo.enode.log.flushing.flush_group import FlushEntry, FlushGroup
from ortoo.enode.log.frame import FrameFlag, FrameHeader, FrameKind
from ortoo.enode.log.segment import Segment
from ortoo.enode.replication.log_opening import open_replicated_log
from ortoo.enode.replication.membership import ReplicaMembership
from ortoo.enode.replication.protocol.identity import Configuration, ReplicaId
from ortoo.enode.replication.replicated_log import ReplicatedLog
from ortoo.verification.store.single_store import SingleStore
from ortoo.verification.store.workload import FOLDER
from tests.contract.one_store import SETTINGS, OneStore


async def opened_log(one: OneStore, joining: ReplicaMembership) -> ReplicatedLog:
    """The log of a replica in the store's folder."""
    kept, outline = joining.next_incarnation()
    identity = StoreIdentity("default", "enode-0", kept.set_id, kept.created_at_ms)
    return await open_replicated_log(
        FOLDER,
        identity=identity,
        settings=one.settings,
        disk=one.disk,
        clock=one.clock,
        stored=outline,
        begin_under_another_id=joining.begin_under_another_id,
    )


async def test_who_leads_no_more_keeps_the_copies_that_did_not_go_to_the_disk_yet() -> None:
    """It counted them as a follower, and forgets only its own ones; the simulation found it with seed 443."""
    one = OneStore(settings=SETTINGS)
    await one.open()
    await one.store.close()
    log = await opened_log(one, ReplicaMembership(one.disk, FOLDER, one.clock, Randomness(1)))
    log.engine.appender.commit_limit = 1 << 62
    log.start_epoch(1)
    begin = log.engine.appender.appended_position
    await log.append_protocol_frame(FrameKind.EPOCH)
    await log.engine.appender.flush()
    data = await log.bytes.read_disk(begin, 1 << 20)
    at = log.engine.appender.appended_position
    [frame] = frames_in(data, begin)
    copy = replace(frame, header=frame.header._replace(position=at))
    log.follow()
    log.engine.appender.append_copy(make_entry(copy.header, copy.body), copy.data)
    copied = log.engine.appender.appended_position
    assert copied > at
    log.start_epoch(2)
    await log.append_protocol_frame(FrameKind.EPOCH)
    assert log.engine.appender.appended_position > copied
    log.follow()
    assert log.engine.appender.appended_position == copied
    log.engine.appender.request_flush()
    await log.engine.appender.wait_idle()
    assert log.engine.appender.durable_position == copied
    await log.close()


async def test_a_log_is_closed_with_copies_that_no_caller_has_flushed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A follower that is stopped while it waits for its next segment flushes the frames that it has accepted."""
    one = OneStore(settings=SETTINGS)
    await one.open()
    await one.store.close()
    log = await opened_log(one, ReplicaMembership(one.disk, FOLDER, one.clock, Randomness(1)))
    appender = log.engine.appender
    appender.commit_limit = 1 << 62
    log.start_epoch(1)
    begin = appender.appended_position
    await log.append_protocol_frame(FrameKind.EPOCH)
    await appender.flush()
    [frame] = frames_in(await log.bytes.read_disk(begin, 1 << 20), begin)
    copy = replace(frame, header=frame.header._replace(position=appender.appended_position))
    last = replace(copy, header=copy.header._replace(position=copy.header.end_position, flags=FrameFlag.SEGMENT_END))
    log.follow()

    async def take(frame_bytes: int, *, is_state: bool) -> Segment:
        raise asyncio.CancelledError

    monkeypatch.setattr(appender.spares, "take", take)
    with pytest.raises(asyncio.CancelledError):
        await log.write(appender.appended_position, [copy, last])
    assert appender.appended_position == copy.header.end_position
    async with asyncio.timeout(60):
        await log.close()
    assert appender.durable_position == appender.appended_position


async def test_a_start_without_a_descriptor_releases_the_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any operation that needs a descriptor may be the first one without it. The next start then succeeds."""
    one = OneStore(settings=SETTINGS)
    await one.open()
    await one.store.close()
    disk, joining = one.disk, ReplicaMembership(one.disk, FOLDER, one.clock, Randomness(1))
    kept, outline = joining.next_incarnation()
    identity = StoreIdentity("default", "enode-0", kept.set_id, kept.created_at_ms)
    needs_descriptor, left = disk._need_descriptor, 0

    def opened_or_refused(path: Path) -> None:
        nonlocal left
        left -= 1
        disk.open_error = errno.EMFILE if left < 0 else 0
        needs_descriptor(path)

    async def opened(operations: int) -> ReplicatedLog:
        nonlocal left
        left = operations
        return await open_replicated_log(
            FOLDER,
            identity=identity,
            settings=one.settings,
            disk=disk,
            clock=one.clock,
            stored=outline,
            begin_under_another_id=joining.begin_under_another_id,
        )

    monkeypatch.setattr(disk, "_need_descriptor", opened_or_refused)
    refused, log = 0, None
    while log is None:
        with contextlib.suppress(NoDescriptor):
            log = await opened(refused)
        if log is None:
            refused += 1
            await (await opened(1 << 30)).close()
    left = 1 << 30
    await log.close()
    assert refused > 20


async def test_closing_a_log_that_was_emptied_writes_nothing_about_what_it_held() -> None:
    """No index of segments that had just become full, because they are deleted, and no marker of a clean stop."""
    one = OneStore(settings=replace(SETTINGS, idle_mark_ms=1_000_000))
    await one.open()
    await one.store.close()
    disk = one.disk
    joining = ReplicaMembership(disk, FOLDER, one.clock, Randomness(1))
    log = await opened_log(one, joining)
    await log.engine.housekeeping.stop()  # so that no index is written meanwhile
    log.engine.appender.commit_limit = 1 << 62
    log.start_epoch(1)
    log.start_serving()
    one.store = SingleStore(log.engine)
    while len(log.engine.catalog.segments) < 3:
        await one.append(b"x" * 1_000)
    end = log.engine.appender.appended_position
    assert await log.reset(replace(log.summary, begin=2 * end, appended=2 * end, flushed=2 * end))
    await log.close()
    assert set(disk.list(FOLDER)) == {"begin", "identity", "outline", "reign", "serials"}
    log = await opened_log(one, joining)
    assert log.engine.appender.appended_position == 2 * end
    await log.close()


async def test_an_enode_alone_that_gets_replicas_makes_its_space_reserve() -> None:
    """It votes from then on, also on a full disk, and it need not have been restarted before."""
    one = OneStore(settings=SETTINGS)
    await one.open()
    await one.store.close()
    joining = ReplicaMembership(one.disk, FOLDER, one.clock, Randomness(1))
    log = await opened_log(one, joining)
    assert RESERVE_NAME not in one.disk.list(FOLDER)
    log.start_epoch(1)
    await log.append_protocol_frame(FrameKind.EPOCH)
    await log.append_configuration(Configuration((joining.stored.replica,), (ReplicaId(2, "other"),)))
    assert len(read_file(one.disk, FOLDER / RESERVE_NAME) or b"") == RESERVE_BYTES
    await log.close()


@pytest.mark.parametrize("left_bytes", [0, 64, 128, 192])
async def test_the_first_frame_of_an_epoch_is_its_epoch_frame(left_bytes: int) -> None:
    """Also in a segment that copied frames fill: the mark of its end would be a frame of the epoch before that.

    A former leader's frames at that place would then count as matching.
    """
    one = OneStore(settings=SETTINGS)
    await one.open()
    await one.store.close()
    log = await opened_log(one, ReplicaMembership(one.disk, FOLDER, one.clock, Randomness(1)))
    appender = log.engine.appender
    begin = appender.appended_position
    appender.active.limit = begin + left_bytes
    log.start_epoch(1)
    await log.append_protocol_frame(FrameKind.EPOCH)
    await appender.flush()
    first = next(frames_in(await log.bytes.read_disk(begin, 1 << 20), begin))
    assert (first.header.kind, first.header.leader_epoch) == (FrameKind.EPOCH, 1)
    await log.close()


async def test_a_log_without_state_is_opened_again_for_a_new_checkpoint_only() -> None:
    """The opening could not fold the checkpoints that it has read, so another one would be in vain, for ever."""
    one = OneStore(settings=SETTINGS)
    await one.open()
    await one.store.close()
    log = await opened_log(one, ReplicaMembership(one.disk, FOLDER, one.clock, Randomness(1)))
    complete: list[int] = []
    log.on_checkpoint_complete = lambda: complete.append(1)

    def commit(position: int, total: int) -> int:
        header = FrameHeader(kind=FrameKind.CHECKPOINT, position=position)
        part = CheckpointSlice(position, 0, total, position, position, b"").at(position)
        log._look_for_checkpoint(FlushGroup(entries=[FlushEntry(header, slice_at=part)]))
        return len(complete)

    end = log.summary.appended
    assert end > 64
    assert commit(end - 64, 1) == 0
    assert commit(end, 0) == 0
    assert commit(end, 1) == 1
    await log.close()
