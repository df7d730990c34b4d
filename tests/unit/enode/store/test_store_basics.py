"""The basic guarantees of a store: appended messages are read back, also after a restart."""

import asyncio
from pathlib import Path

import pytest

from ortoo.common.errors import Conflict, Fenced, Invalid, NotFound, OutOfRange, Unavailable
from ortoo.common.process.clock import SystemClock
from ortoo.common.process.randomness import Randomness
from ortoo.common.records.sealed_batch import SealedBatch, crc32c
from ortoo.enode.changes.kinds import OffsetsCommitted
from ortoo.enode.disk.disk import RealDisk
from ortoo.enode.log.results import QueueSize, TopicCopy
from ortoo.enode.log.settings import FlushMode, StoreSettings
from ortoo.verification.store.single_store import SingleStore, open_single_store

TOPIC = 77
SETTINGS = StoreSettings(segment_bytes=64 << 10, headroom_bytes=0, recent_bytes=1 << 20)


async def opened(folder: Path, settings: StoreSettings = SETTINGS) -> SingleStore:
    """A store with one topic of four queues."""
    store = await open_single_store(
        folder, settings=settings, disk=RealDisk(), clock=SystemClock(), randomness=Randomness(1)
    )
    await store.put_topics([TopicCopy(TOPIC, "orders", 4, 1)])
    return store


def batch(text: bytes, count: int = 1, producer_id: int = 0, first_sequence: int = 0) -> SealedBatch:
    """A batch whose bytes are `text`."""
    return SealedBatch(text, crc32c(text), count, len(text), producer_id, first_sequence)


async def read_all(store: SingleStore, queue_id: int = 0) -> list[tuple[int, bytes]]:
    """Every batch of a queue: first offset and bytes."""
    found: list[tuple[int, bytes]] = []
    offset = store.describe_queues(TOPIC)[queue_id].begin_offset
    while True:
        fetched = await store.fetch(TOPIC, queue_id, offset, bytes_max=10_000)
        if not fetched.batches:
            return found
        found += [(one.first_offset, one.batch.records) for one in fetched.batches]
        offset = fetched.next_offset


@pytest.mark.parametrize("threads", [True, False])
async def test_batches_are_read_back_in_order_and_after_a_restart(tmp_path: Path, threads: bool) -> None:
    """Acknowledged batches have dense offsets and the same bytes, before and after a clean stop, over many segments."""
    settings = StoreSettings(segment_bytes=64 << 10, headroom_bytes=0, recent_bytes=20_000, threads=threads)
    store = await opened(tmp_path, settings)
    expected: list[tuple[int, bytes]] = []
    for number in range(300):
        text = b"%06d" % number * 200
        answer = await store.append(TOPIC, 0, batch(text, 3))
        assert answer.first_offset == 3 * number
        assert answer.flush_mode is FlushMode.SYNC
        expected.append((3 * number, text))
    assert store.describe().segment_count > 4
    assert await read_all(store) == expected
    await store.close()
    store = await opened(tmp_path, settings)
    assert await read_all(store) == expected
    assert (await store.append(TOPIC, 0, batch(b"x"))).first_offset == 900
    await store.close()


async def test_the_time_of_the_last_message_outlives_segments_restarts_and_trims(tmp_path: Path) -> None:
    """It is that of the last append to the queue; 0 for a queue without messages."""
    store = await opened(tmp_path)
    assert store.last_times_ms(TOPIC) == [0, 0, 0, 0]
    first = await store.append(TOPIC, 0, batch(b"x"))
    *_, last = [await store.append(TOPIC, 2, batch(b"%06d" % number * 700)) for number in range(40)]
    assert store.describe().segment_count > 1
    expected = [first.stored_at_ms, 0, last.stored_at_ms, 0]
    assert store.last_times_ms(TOPIC) == expected
    await store.close()
    store = await opened(tmp_path)
    assert store.last_times_ms(TOPIC) == expected
    await store.trims.trim(TOPIC, {0: 1, 2: 40})
    assert [one.begin_offset for one in store.describe_queues(TOPIC)] == [1, 0, 40, 0]
    assert store.last_times_ms(TOPIC) == expected
    await store.close()


async def test_concurrent_appends_share_flushes(tmp_path: Path) -> None:
    """Appends that arrive while a flush runs become the next one."""
    store = await opened(tmp_path)
    before = store.describe().counters["flushes"]
    answers = await asyncio.gather(*(store.append(TOPIC, n % 4, batch(b"m%d" % n)) for n in range(200)))
    assert sorted(one.first_offset for one in answers) == sorted(list(range(50)) * 4)
    assert store.describe().counters["flushes"] - before < 20
    await store.close()


async def test_a_fetch_at_the_end_waits_for_the_next_batch(tmp_path: Path) -> None:
    """A reader at the end is woken by the next append, and answered empty at its timeout."""
    store = await opened(tmp_path)
    reading = asyncio.get_running_loop().create_task(store.fetch(TOPIC, 1, 0, wait_ms=60_000))
    await store.append(TOPIC, 1, batch(b"hello"))
    async with asyncio.timeout(60):
        assert (await reading).batches[0].batch.records == b"hello"
    assert (await store.fetch(TOPIC, 1, 1, wait_ms=5)).batches == ()
    await store.close()


async def test_wrong_places_are_refused_by_name(tmp_path: Path) -> None:
    """Unknown topics and queues, and offsets outside the queue, are named errors."""
    store = await opened(tmp_path)
    with pytest.raises(NotFound) as topic:
        await store.append(1, 0, batch(b"x"))
    assert topic.value.field == "topic_id"
    with pytest.raises(NotFound) as queue:
        await store.append(TOPIC, 4, batch(b"x"))
    assert queue.value.field == "queue_id"
    with pytest.raises(OutOfRange):
        await store.fetch(TOPIC, 0, 1)
    await store.close()
    with pytest.raises(Unavailable):
        await store.append(TOPIC, 0, batch(b"x"))


async def test_offsets_survive_and_older_generations_are_fenced(tmp_path: Path) -> None:
    """Committed offsets are there after a restart; generations never go back."""
    store = await opened(tmp_path)
    await store.offsets.commit(TOPIC, "g", {0: 5, 1: 7}, 3)
    await store.offsets.commit(TOPIC, "g", {0: 2}, 3)
    with pytest.raises(Fenced):
        await store.offsets.commit(TOPIC, "g", {0: 9}, 2)
    with pytest.raises(Invalid):
        await store.offsets.commit(TOPIC, "g", {0: -1})
    await store.close()
    store = await opened(tmp_path)
    assert store.offsets.of(TOPIC, "g") == {0: 2, 1: 7}
    with pytest.raises(Fenced):
        await store.offsets.commit(TOPIC, "g", {0: 9}, 2)
    await store.close()


async def test_a_batch_sent_again_is_stored_once(tmp_path: Path) -> None:
    """A retry answers the first offset, also after a restart; a gap is refused as retriable."""
    store = await opened(tmp_path)
    first = await store.append(TOPIC, 0, batch(b"a", 2, 9, 0))
    assert await store.append(TOPIC, 0, batch(b"a", 2, 9, 0)) == first
    with pytest.raises(Unavailable):
        await store.append(TOPIC, 0, batch(b"c", 1, 9, 5))
    with pytest.raises(Conflict):
        await store.append(TOPIC, 0, batch(b"b", 2, 9, 0))
    with pytest.raises(NotFound):
        await store.append(TOPIC, 0, batch(b"c", 1, 10, 5))
    await store.close()
    store = await opened(tmp_path)
    assert (await store.append(TOPIC, 0, batch(b"a", 2, 9, 0))).first_offset == first.first_offset
    assert (await store.append(TOPIC, 0, batch(b"d", 1, 9, 2))).first_offset == 2
    await store.close()


async def test_a_folder_has_one_owner(tmp_path: Path) -> None:
    """A second process, another cluster or another enode is refused."""
    store = await opened(tmp_path)
    with pytest.raises(Conflict):
        await opened(tmp_path)
    await store.close()
    with pytest.raises(Conflict):
        await opened(tmp_path, StoreSettings(segment_bytes=64 << 10, headroom_bytes=0, enode="other"))


async def test_a_batch_larger_than_a_segment_gets_a_segment_of_its_own(tmp_path: Path) -> None:
    """One message of 4 MiB fits any store, and the log continues behind it."""
    store = await opened(tmp_path)
    large = b"L" * (4 << 20)
    for text in (b"before", large, b"between", large, b"after"):
        await store.append(TOPIC, 0, batch(text))
    assert [one for _, one in await read_all(store)] == [b"before", large, b"between", large, b"after"]
    await store.close()
    (tmp_path / "clean").unlink()
    store = await opened(tmp_path)
    assert len(await read_all(store)) == 5
    assert not store.describe().damages
    await store.close()


async def test_topics_are_copied_deleted_and_never_go_back_a_version(tmp_path: Path) -> None:
    """A topic is deleted with its queues and offsets, and a stale copy changes nothing."""
    store = await opened(tmp_path)
    await store.put_topics([TopicCopy(5, "five", 8, 3)])
    await store.put_topics([TopicCopy(5, "five", 2, 2)])
    assert [topic.queue_count for topic in store.topics()] == [8, 4]
    await store.append(5, 7, batch(b"x"))
    await store.offsets.commit(5, "g", {7: 1})
    waiting = asyncio.get_running_loop().create_task(store.fetch(5, 0, 0, wait_ms=60_000))
    await store.append(TOPIC, 0, batch(b"y"))
    await store.delete_topics([5, 1234])
    with pytest.raises(NotFound):
        await waiting
    with pytest.raises(NotFound):
        await store.fetch(5, 7, 0)
    assert store.offsets.groups(5) == []
    await store.close()
    store = await opened(tmp_path)
    assert [topic.topic_id for topic in store.topics()] == [TOPIC]
    await store.close()


async def test_an_offset_is_found_by_time(tmp_path: Path) -> None:
    """The first batch stored at or after a time, in sealed segments and in the active one."""
    store = await opened(tmp_path)
    times = [(await store.append(TOPIC, 0, batch(b"%04d" % number * 200))).stored_at_ms for number in range(300)]
    assert store.describe().segment_count > 2
    for number in (0, 1, 50, 150, 299):
        assert await store.find_offset(TOPIC, 0, times[number]) == times.index(times[number])
    assert await store.find_offset(TOPIC, 0, 0) == 0
    assert await store.find_offset(TOPIC, 0, times[-1] + 1) == 300
    assert await store.find_offset(TOPIC, 1, 0) == 0
    await store.close()


async def test_closing_ends_waiting_fetches_and_refuses_later_calls(tmp_path: Path) -> None:
    """Waiting readers are answered empty; later calls fail because the store is closed."""
    store = await opened(tmp_path)
    waiting = asyncio.get_running_loop().create_task(store.fetch(TOPIC, 0, 0, wait_ms=60_000))
    await store.append(TOPIC, 1, batch(b"x"))
    await store.close()
    await store.close()
    assert (await waiting).batches == ()
    with pytest.raises(Unavailable):
        await store.fetch(TOPIC, 1, 0)
    with pytest.raises(Unavailable):
        await store.offsets.commit(TOPIC, "g", {0: 1})
    assert not store.describe().writable


@pytest.mark.parametrize("lose_caches", [True, False])
async def test_a_batch_and_what_it_consumes_are_one_transition(tmp_path: Path, lose_caches: bool) -> None:
    """State changes in a batch's frame are applied with it, now and by each later fold; its bytes stay whole."""
    store = await opened(tmp_path)
    change = OffsetsCommitted(TOPIC, "timers", 0, ((2, 41),))
    await store.append(TOPIC, 0, batch(b"due message"), consumes=(change,))
    assert store.offsets.of(TOPIC, "timers") == {2: 41}
    await store.close()
    if lose_caches:
        (tmp_path / "clean").unlink()
    store = await opened(tmp_path)
    assert store.offsets.of(TOPIC, "timers") == {2: 41}
    assert await read_all(store) == [(0, b"due message")]
    await store.close()


async def test_a_clean_stop_leaves_a_marker_and_a_running_store_has_none(tmp_path: Path) -> None:
    """E-218: a folder without the marker was not closed cleanly."""
    marker = tmp_path / "clean"
    store = await opened(tmp_path)
    assert not marker.exists()
    await store.close()
    assert marker.exists()
    store = await opened(tmp_path)
    assert not marker.exists()
    await store.close()


async def test_the_bytes_of_a_queue_are_measured(tmp_path: Path) -> None:
    """The end at which the batches reach a limit is exact over segments, and after a restart; one batch always fits."""
    store = await opened(tmp_path)
    lengths = [100 + number * 7919 % 2_000 for number in range(300)]
    lengths[200] = 9_000
    for length in lengths:
        await store.append(TOPIC, 0, batch(bytes(length)))
        await store.append(TOPIC, 1, batch(bytes(50)))
    assert store.describe().segment_count > 4
    for first, bytes_max in ((0, 0), (0, 50_000), (7, 1 << 40), (150, 30_000), (200, 5_000), (298, 900), (299, 9_000)):
        end, total = first, 0
        while end < len(lengths) and (end == first or total + lengths[end] <= bytes_max):
            end, total = end + 1, total + lengths[end]
        assert await store.measure_queue(TOPIC, 0, first, bytes_max) == QueueSize(end, total)
    assert await store.measure_queue(TOPIC, 0, 300, 1 << 40) == QueueSize(300, 0)
    assert await store.measure_queue(TOPIC, 2, 0, 1 << 40) == QueueSize(0, 0)
    with pytest.raises(NotFound):
        await store.measure_queue(TOPIC, 9, 0, 1)
    await store.close()
    store = await opened(tmp_path)
    assert await store.measure_queue(TOPIC, 0, 0, 1 << 40) == QueueSize(300, sum(lengths))
    await store.close()
