"""The log records its beginning: it has no gaps, and a missing file is not treated as a deletion."""

from dataclasses import replace

import pytest

from ortoo.common.errors import DataLoss, OutOfRange
from ortoo.enode.disk.disk import Buffer
from ortoo.enode.log.results import QueueRange
from ortoo.enode.log.segment import segment_bases, segment_name
from ortoo.verification.store.workload import FOLDER
from tests.contract.one_store import SETTINGS, TOPIC, OneStore

RETAINING = replace(SETTINGS, retention_bytes=40_000, retention_interval_ms=1_000)


async def _filled(one: OneStore, batches: int = 60) -> None:
    for number in range(batches):
        await one.append(b"%03d " % number + bytes(1_000), number % 2)
    await one.store.engine.housekeeping.checkpoint()
    await one.store.engine.housekeeping.checkpoint()


async def _retained(one: OneStore) -> None:
    """Run retention once."""
    await one.clock.pass_time(1.5)


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize("good_ones", [0, 1, 2, 3, 4])
def test_a_failed_removal_leaves_no_hole_and_the_range_never_goes_back(good_ones: int, *, is_clean: bool) -> None:
    """EIO for one of several files being deleted: after a restart the range is the same, without damage."""
    one = OneStore(settings=RETAINING)

    async def scenario() -> None:
        await one.open()
        await _filled(one)
        files = len(segment_bases(one.disk.list(FOLDER)))
        one.disk.fail_remove(after=good_ones)
        await _retained(one)
        begin = one.store.describe_queues(TOPIC)
        assert all(row.begin_offset > 0 for row in begin[:2])
        await (one.restart() if is_clean else one.crash(good_ones))
        assert one.store.describe_queues(TOPIC) == begin
        assert not one.store.describe().damages
        await one.texts()
        await _retained(one)
        left = segment_bases(one.disk.list(FOLDER))
        assert len(left) < files
        assert left[0] == one.store.engine.catalog.begin_position
        await one.store.close()

    one.clock.run(scenario, limit_s=3_600)


@pytest.mark.parametrize("has_retained", [True, False])
@pytest.mark.parametrize("is_clean", [True, False])
def test_a_first_segment_that_is_missing_is_named_as_loss(*, has_retained: bool, is_clean: bool) -> None:
    """A file removed by hand is damage with its range, DATA_LOSS to readers; files deleted by retention are not."""
    one = OneStore(settings=RETAINING if has_retained else SETTINGS)

    async def scenario() -> None:
        await one.open()
        await _filled(one)
        await _retained(one)
        begin = one.store.describe_queues(TOPIC)
        first, second = segment_bases(one.disk.list(FOLDER))[:2]
        assert (first > 0) is has_retained
        await one.store.close()
        one.disk.remove(FOLDER / segment_name(first))
        if not is_clean:
            one.disk.remove(FOLDER / "clean")
        store = await one.open()
        assert store.describe_queues(TOPIC) == begin
        [damage] = store.describe().damages
        assert (damage.file, damage.position, damage.length_bytes) == (segment_name(first), first, second - first)
        for row in begin[:2]:
            lost = [part for part in damage.queues if part.queue_id == row.queue_id]
            assert [part.begin_offset for part in lost] == [row.begin_offset]
            with pytest.raises(DataLoss, match=segment_name(first)) as error:
                await store.fetch(TOPIC, row.queue_id, row.begin_offset)
            assert error.value.end_offset == lost[0].end_offset
            assert (await store.fetch(TOPIC, row.queue_id, lost[0].end_offset)).batches
            if row.begin_offset:
                with pytest.raises(OutOfRange):
                    await store.fetch(TOPIC, row.queue_id, row.begin_offset - 1)
        assert (await one.append(b"goes on")).first_offset == begin[0].end_offset
        await store.close()

    one.clock.run(scenario, limit_s=3_600)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("00000000000000000099.seg", b""),
        ("00000000000000000099.seg", b"of somebody else" * 100),
        ("00000000000000004096.seg", b""),
        ("00000000000000004096.seg", b"of somebody else" * 100),
        ("00000000000000999936.seg", b""),
        ("99999999999999999999.seg", b""),
    ],
)
@pytest.mark.parametrize("is_clean", [True, False])
def test_a_stray_file_is_ignored_and_costs_nothing(name: str, content: Buffer, *, is_clean: bool) -> None:
    """A file that has a segment's name but is no segment is not touched, and every message is kept."""
    one = OneStore()

    async def scenario() -> None:
        await one.open()
        await _filled(one, 30)
        texts, ranges = await one.texts(), one.store.describe_queues(TOPIC)
        await one.store.close()
        if not is_clean:
            one.disk.remove(FOLDER / "clean")
        file = one.disk.open(FOLDER / name, create=True)
        file.write(0, [content])
        file.sync_data()
        file.close()
        store = await one.open()
        assert not store.describe().damages
        assert await one.texts() == texts
        assert store.describe_queues(TOPIC) == ranges
        assert (await one.append(b"goes on")).first_offset == ranges[0].end_offset
        await one.restart()
        assert name in one.disk.list(FOLDER)
        assert one.store.describe_queues(TOPIC)[0] == QueueRange(0, 0, ranges[0].end_offset + 1)
        await one.store.close()

    one.clock.run(scenario, limit_s=3_600)
