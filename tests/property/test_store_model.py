"""The store against a simple model: for any operations in any order, both answer the same.

ORTOO_EXAMPLES=5000 runs it at length.
"""

import os
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from ortoo.common.errors import OrtooError
from ortoo.common.process.randomness import Randomness
from ortoo.common.records.sealed_batch import SealedBatch, crc32c
from ortoo.enode.log.results import TopicCopy
from ortoo.enode.log.settings import StoreSettings
from ortoo.testing.disks.disk_image import KEEP_UNSYNCED
from ortoo.testing.disks.memory_disk import MemoryDisk
from ortoo.verification.store.crash_points import OUTCOMES, silence_logs
from ortoo.verification.store.model import observe
from ortoo.verification.store.single_store import SingleStore, open_single_store
from ortoo.verification.store.workload import FOLDER, NEEDED
from ortoo.verification.time.virtual_clock import VirtualClock
from tests.property.slow_store import SlowStore, refusal

EXAMPLES = int(os.environ.get("ORTOO_EXAMPLES", "150"))
SETTINGS = StoreSettings(
    segment_bytes=4096, headroom_bytes=0, recent_bytes=3000, index_bytes=500, retention_age_ms=60_000,
    retention_bytes=24 << 10, retention_interval_ms=1000, checkpoint_records=20, checkpoint_slice_bytes=200,
    threads=False,
)  # fmt: skip

topic_ids = st.integers(1, 3)
queue_ids = st.integers(0, 3)
groups = st.sampled_from(["a", "b"])
small = st.integers(0, 40)
operations = st.one_of(
    st.tuples(st.just("append"), topic_ids, queue_ids, st.integers(1, 5), st.integers(1, 1500)),
    st.tuples(st.just("append_many"), topic_ids, queue_ids, st.integers(2, 8), st.integers(1, 2000)),
    st.tuples(st.just("sequence"), topic_ids, st.integers(0, 1), st.integers(-6, 2), st.integers(1, 3)),
    st.tuples(st.just("fetch"), topic_ids, queue_ids, small, st.sampled_from([0, 1, 1000, 4000])),
    st.tuples(st.just("find_time"), topic_ids, queue_ids, st.integers(0, 20_000)),
    st.tuples(st.just("commit"), topic_ids, groups, queue_ids, small, st.integers(0, 3)),
    st.tuples(st.just("put_topic"), topic_ids, st.integers(1, 4)),
    st.tuples(st.just("delete_topic"), topic_ids),
    st.tuples(st.just("pass_time"), st.sampled_from([1, 60, 900, 3000, 90_000])),
    st.tuples(st.just("restart"), st.sampled_from(["clean", "without caches", "killed"]), st.integers(0, 4)),
)


class Run:
    """One example: the same operations on the store and on the model."""

    def __init__(self, clock: VirtualClock) -> None:
        """An empty disk."""
        self.disk = MemoryDisk()
        self.clock = clock
        self.model = SlowStore()
        self.serial = 0
        self.generations: dict[int, int] = {}
        self.store: SingleStore

    async def all(self, steps: list[tuple[Any, ...]]) -> None:
        """Open, do everything, compare everything, restart, compare again."""
        await self._open()
        await self.put_topic(1, 2)
        for name, *arguments in steps:
            await getattr(self, name)(*arguments)
        await self._compare()
        await self.restart("killed", len(steps) % len(OUTCOMES))
        for topic_id, queue_id, _ in list(self.model.sequences):
            for step in (-1, -2, 0):
                await self.sequence(topic_id, queue_id, step, 1)
        await self.restart("clean", 0)
        await self.store.close()

    async def _open(self) -> None:
        self.store = await open_single_store(
            FOLDER, settings=SETTINGS, disk=self.disk, clock=self.clock, randomness=Randomness(1)
        )  # fmt: skip

    async def _same(self, expected: Callable[[], object], actual: Awaitable[object]) -> object:
        """Both answer, or both refuse for the same reason; the store's answer if there is one."""
        refused: type[OrtooError] | None = None
        try:
            expected()
        except OrtooError as error:
            refused = refusal(error)
        answer: object = None
        failure: OrtooError | None = None
        try:
            answer = await actual
        except OrtooError as error:
            failure = error
        assert (refusal(failure) if failure else None) is refused, failure or answer
        return answer

    def _batch(self, count: int, length: int, producer_id: int = 0, first_sequence: int = 0) -> SealedBatch:
        self.serial += 1
        body = b"%d " % self.serial + b"." * length
        return SealedBatch(body, crc32c(body), count, len(body), producer_id, first_sequence)

    async def _append(self, topic_id: int, queue_id: int, batch: SealedBatch) -> None:
        places: list[int] = []
        answer: Any = await self._same(
            lambda: places.append(self.model.place(topic_id, queue_id, batch)),
            self.store.append(topic_id, queue_id, batch),
        )
        if answer is not None:
            assert answer.first_offset == places[0]
            self.model.stored(topic_id, queue_id, batch, answer.first_offset, answer.stored_at_ms)

    async def append(self, topic_id: int, queue_id: int, count: int, length: int) -> None:
        """One batch of a producer without sequences."""
        await self._append(topic_id, queue_id, self._batch(count, length))

    async def append_many(self, topic_id: int, queue_id: int, times: int, length: int) -> None:
        """Several, so that segments fill."""
        for _ in range(times):
            await self._append(topic_id, queue_id, self._batch(1, length))

    async def sequence(self, topic_id: int, queue_id: int, step: int, count: int) -> None:
        """A batch of a producer with sequences: the next (0), a repeated one (below), or one too far (above)."""
        before = self.model.sequences.get((topic_id, queue_id, 7), [])
        if step < 0 and len(before) >= -step:
            batch = before[step].batch
            if count == 3:
                batch = self._batch(batch.count, 9, 7, batch.first_sequence)
            elif count == 2:
                batch = self._batch(batch.count + 1, 9, 7, batch.first_sequence)
        else:
            end = before[-1].batch.first_sequence + before[-1].batch.count if before else 0
            batch = self._batch(count, 30, 7, end + max(0, step))
            if not before and step > 0:
                return  # whether a producer that never sent is unknown or early depends on earlier refusals
        await self._append(topic_id, queue_id, batch)

    async def fetch(self, topic_id: int, queue_id: int, back: int, bytes_max: int) -> None:
        """Read from an offset in the queue, at its end, or outside."""
        queue = self.model.queues.get((topic_id, queue_id))
        offset = max(0, (queue.end if queue else 0) + 2 - back)
        expected: list[Any] = []
        answer: Any = await self._same(
            lambda: expected.extend(self.model.from_offset(topic_id, queue_id, offset)),
            self.store.fetch(topic_id, queue_id, offset, bytes_max=bytes_max),
        )
        if answer is None:
            return
        found = [(one.first_offset, one.stored_at_ms, one.batch) for one in answer.batches]
        wanted = [(one.first_offset, one.stored_at_ms, one.batch) for one in expected]
        assert found == wanted[: len(found)]
        assert bool(found) == bool(wanted)
        assert len(found) <= 1 or sum(len(batch.records) for _, _, batch in found) <= (bytes_max or 1 << 20)

    async def find_time(self, topic_id: int, queue_id: int, ago_ms: int) -> None:
        """Look an offset up by time."""
        at_ms = self.clock.now_ms() - ago_ms
        expected: list[int] = []
        answer = await self._same(
            lambda: expected.append(self.model.at_time(topic_id, queue_id, at_ms)),
            self.store.find_offset(topic_id, queue_id, at_ms),
        )
        assert answer is None or answer == expected[0]

    async def commit(self, topic_id: int, group: str, queue_id: int, offset: int, generation: int) -> None:
        """Commit an offset of an existing queue."""
        if queue_id >= self.model.topics.get(topic_id, 4):
            return
        await self._same(
            lambda: self.model.commit(topic_id, group, queue_id, offset, generation),
            self.store.offsets.commit(topic_id, group, {queue_id: offset}, generation),
        )

    async def put_topic(self, topic_id: int, queue_count: int) -> None:
        """Create a topic, or add queues. A deleted topic comes back only under a new id, so not here."""
        if topic_id in self.generations and topic_id not in self.model.topics:
            return
        queue_count = max(queue_count, self.model.topics.get(topic_id, 0))
        self.generations[topic_id] = self.generations.get(topic_id, 0) + 1
        await self.store.put_topics([TopicCopy(topic_id, f"t{topic_id}", queue_count, self.generations[topic_id])])
        self.model.put_topic(topic_id, queue_count)

    async def delete_topic(self, topic_id: int) -> None:
        """Delete a topic; an unknown one is ignored."""
        if topic_id == 1:
            return
        await self.store.delete_topics([topic_id])
        self.model.delete_topic(topic_id)

    async def pass_time(self, passed_ms: int) -> None:
        """Let marks and retention run; retention may move begins, to where a batch begins."""
        await self.clock.sleep(passed_ms / 1000)
        self._take_begins()

    def _take_begins(self) -> None:
        for topic_id in self.model.topics:
            for row in self.store.describe_queues(topic_id):
                queue = self.model.queues[topic_id, row.queue_id]
                assert row.end_offset == queue.end
                assert row.begin_offset >= queue.begin
                starts = {one.first_offset for one in queue.batches} | {queue.end}
                assert row.begin_offset in starts
                queue.begin = row.begin_offset

    async def restart(self, how: str, variant: int) -> None:
        """Stop, or be killed by a power cut, and start again: nothing changes."""
        if how == "killed":
            before = self.store
            self.disk = self.disk.after_crash(Randomness(self.serial), OUTCOMES[variant])
            await self._open()
            await before.close()
        else:
            await self.store.close()
            if how == "without caches":
                for name in self.disk.list(FOLDER):
                    if not name.endswith(NEEDED):
                        self.disk.remove(FOLDER / name)
            self.disk = self.disk.after_crash(Randomness(0), KEEP_UNSYNCED)
            await self._open()
        self.model.sent_since_start.clear()
        self._take_begins()
        await self._compare()

    async def _compare(self) -> None:
        found = await observe(self.store)
        assert {topic_id: count for topic_id, (_, count, *_) in found.topics.items()} == self.model.topics
        for key, queue in self.model.queues.items():
            assert found.ranges[key] == (queue.begin, queue.end)
            assert found.batches[key] == [
                (one.first_offset, one.batch) for one in queue.batches if one.first_offset >= queue.begin
            ]
        assert found.offsets == {
            (topic_id, group, queue_id): offset
            for (topic_id, group), rows in self.model.offsets.items()
            for queue_id, (offset, _) in rows.items()
        }
        assert not self.store.describe().damages


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(operations, min_size=8, max_size=50))
@example([("sequence", 1, 0, 0, 1), ("restart", "clean", 0), ("sequence", 1, 0, 1, 1)])
@pytest.mark.timeout(1800)
def test_the_store_answers_as_the_model_does(steps: list[tuple[Any, ...]]) -> None:
    """G1, G3, G4, G10, G11: appends, fetches, commits, retention and restarts in any order agree with the model."""
    clock = VirtualClock()
    run = Run(clock)
    with silence_logs():
        clock.run(lambda: run.all(steps), limit_s=86_400)
