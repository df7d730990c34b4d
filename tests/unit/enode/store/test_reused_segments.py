"""The segments whose files the log may use again."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from unittest import mock

import pytest

from ortoo.common.process.randomness import Randomness
from ortoo.enode.changes.kinds import IdsRemembered, OffsetsCommitted, StateChange, encode_changes
from ortoo.enode.log.copies.frame_copies import frames_in, make_entry
from ortoo.enode.log.frame import ALIGNMENT_BYTES, MAGIC_BYTES, FrameKind
from ortoo.enode.log.segment import Segment, segment_bases
from ortoo.enode.replication.membership import ReplicaMembership
from ortoo.verification.store.workload import FOLDER
from tests.contract.one_store import SETTINGS, TOPIC, OneStore, batch
from tests.unit.enode.replication.test_replicated_log import opened_log

BODY = b"m" * 1_000


async def fill(one: OneStore, body: bytes = BODY) -> Segment:
    """Send a body, and then others until its segment is sealed; returns the segment."""
    await one.append(body)
    segment = one.store.engine.appender.active
    while segment.end is None:
        await one.append(BODY)
    await one.store.engine.housekeeping.index_sealed()
    return segment


async def delete(one: OneStore) -> list[bool]:
    """Delete all sealed segments; returns which of the next segments overwrite an earlier one."""
    engine = one.store.engine
    ready = len(engine.spares._available)
    await engine.housekeeping.delete_below(engine.catalog.active.base)
    return [spare.is_reused for spare in engine.spares._available[ready:]]


async def test_deleted_segments_are_reused() -> None:
    """They are the segments that this process wrote, unless a message in them resembles a frame."""
    one = OneStore()
    await one.open()
    for _ in range(2):
        await fill(one)
    assert await delete(one) == [True, True]
    answer = await one.append(b"first")
    for _ in range(2):
        await fill(one)
    assert one.store.engine.appender.active.is_reused
    found = await one.texts()
    assert (answer.first_offset, b"first") in found
    assert {body for _, body in found} == {b"first", BODY}
    await one.store.close()


async def test_a_segment_with_a_body_that_resembles_a_frame_is_not_reused() -> None:
    """The segments before and behind it are."""
    one = OneStore()
    await one.open()
    segments = [await fill(one, body) for body in (BODY, bytes(ALIGNMENT_BYTES) + MAGIC_BYTES + BODY, BODY)]
    assert [segment.is_reusable for segment in segments] == [True, False, True]
    assert await delete(one) == [True, True]
    await one.store.close()


@pytest.mark.parametrize(("end", "is_reusable"), [(b"OR", False), (b"OT", True)])
async def test_prefix_and_payload_are_searched_together(end: bytes, *, is_reusable: bool) -> None:
    """Clients choose ids and names in the prefix, and the payload follows it at once."""
    one = OneStore()
    await one.open()

    def changes(padding: int) -> tuple[StateChange, ...]:
        ids = IdsRemembered(TOPIC, 0, 0, False, 1, 2, (b"i" * 14 + end,))
        return OffsetsCommitted(TOPIC, "g" * padding, 0, ((0, 1),)), ids

    def prefix(padding: int) -> bytes:
        return encode_changes([change.encoded() for change in changes(padding)])

    padding = next(one for one in range(1, 100) if len(prefix(one)) % ALIGNMENT_BYTES == len(end))
    assert prefix(padding).endswith(end)
    await one.store.append(TOPIC, 0, batch(b"TO" + BODY), consumes=changes(padding))
    assert one.store.engine.appender.active.is_reusable is is_reusable
    await one.store.close()


async def test_a_name_that_resembles_a_frame_is_found_in_a_state_change() -> None:
    """Groups have names that clients choose."""
    one = OneStore()
    store = await one.open()
    await store.offsets.commit(TOPIC, "audit" * 20, {0: 1})
    assert store.engine.appender.active.is_reusable
    for padding in range(ALIGNMENT_BYTES):
        await store.offsets.commit(TOPIC, "g" * padding + MAGIC_BYTES.decode(), {0: 1})
    assert not all(segment.is_reusable for segment in store.engine.catalog.segments)
    await store.close()


async def test_segments_of_an_earlier_process_are_not_reused() -> None:
    """The process that reads them again has not searched their bodies."""
    one = OneStore()
    await one.open()
    await fill(one)
    await one.append(BODY)
    await one.store.engine.housekeeping.checkpoint()
    await one.restart()
    active = one.store.engine.appender.active
    assert not active.is_reusable
    await fill(one)
    assert active.end is not None
    await fill(one)
    assert await delete(one) == [True]
    await one.store.close()


async def test_a_segment_without_its_index_file_is_not_reused() -> None:
    """The work that writes the file would truncate and close the later segment."""
    one = OneStore()
    store = await one.open()
    active = store.engine.appender.active
    with mock.patch.object(store.engine.housekeeping, "index_sealed"):
        while active.end is None:
            await one.append(BODY)
    assert active.is_reusable
    assert await delete(one) == []
    await one.store.close()


async def test_segments_with_copies_of_a_leader_are_not_reused() -> None:
    """A follower accepts the bodies of its leader without a search."""
    one = OneStore()
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
    spare = await appender.spares.take(1, is_state=True)
    appender.end_segment(spare)
    assert appender.active.is_reusable
    log.follow()
    header = frame.header._replace(position=appender.appended_position)
    appender.append_copy(make_entry(header, frame.body), header.encoded() + bytes(frame.data)[len(header.encoded()) :])
    assert appender.active is spare
    assert not appender.active.is_reusable
    appender.request_flush()
    await appender.wait_idle()
    await log.close()


async def test_a_segment_that_a_slow_reader_reads_is_not_reused() -> None:
    """The reader gets the bytes of the deleted segment."""
    one = OneStore()
    await one.open()
    segment = await fill(one)
    await fill(one)
    file = segment._reading.begin()
    before = file.read(0, 1 << 20)
    assert await delete(one) == [True]
    for _ in range(3):
        await fill(one)
    assert file.read(0, 1 << 20) == before
    segment._reading.end()
    await one.store.close()


async def test_a_store_that_stops_has_removed_the_files_of_deleted_segments() -> None:
    """Housekeeping ends after the piece of work that it has begun, so a file that is not reused is removed in it."""
    one = OneStore()
    store = await one.open()
    for body in (MAGIC_BYTES, BODY):
        await fill(one, body)
    housekeeping = store.engine.housekeeping
    works: list[object] = []

    async def run(work: Callable[..., object], *args: object) -> object:
        works.append(work)
        result = work(*args)
        if len(works) == 2:  # the first one has recorded the log's begin
            raise asyncio.CancelledError
        return result

    begin = store.engine.catalog.active.base
    with mock.patch.object(housekeeping.work, "run", run), pytest.raises(asyncio.CancelledError):
        await housekeeping.delete_below(begin)
    assert segment_bases(one.disk.list(FOLDER)) == [begin]
    await store.close()


@pytest.mark.parametrize("is_leading", [True, False])
def test_spares_that_no_segment_needs_are_removed_in_time(*, is_leading: bool) -> None:
    """They hold deleted messages. A replica that no longer leads removes them, too.

    The time decides, and not the number of runs of retention: a log that is too large for long has many runs.
    """
    one = OneStore(settings=replace(SETTINGS, retention_interval_ms=10_000))

    async def check() -> None:
        store = await one.open()
        await fill(one)
        assert await delete(one) == [True]
        housekeeping, spares = store.engine.housekeeping, store.engine.spares
        housekeeping.is_leading = is_leading
        for _ in range(5):
            await one.clock.sleep(1)
            await housekeeping.apply_retention()
        assert any(spare.is_reused for spare in spares._available)
        await one.clock.sleep(20)
        assert not any(spare.is_reused for spare in spares._available)
        housekeeping.is_leading = True
        await store.close()

    one.clock.run(check, limit_s=100)
