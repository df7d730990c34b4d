"""Each file of an enode without replicas is lost, emptied, older or another store's; the store is started three times.

The rows are those of tests/store_files.py.
"""

import asyncio
from collections.abc import Mapping
from functools import cache
from itertools import pairwise

import pytest

from ortoo.common.errors import DataLoss
from ortoo.common.process.randomness import Randomness
from ortoo.enode.disk.identity import read_identity
from ortoo.enode.disk.segment_files import SegmentFiles
from ortoo.enode.log.results import TopicCopy
from ortoo.enode.log.segment import Segment, segment_bases, segment_name
from ortoo.enode.offline.repair import remove_caches
from ortoo.enode.recovery.opening import durable_end
from ortoo.enode.recovery.refold import StateRefold
from ortoo.enode.recovery.restored import OPENINGS_GAP
from ortoo.verification.store.workload import FOLDER
from tests.store_files import FILES, Harm, Start, StoreFile, names_of, of_another_log, undescribed
from tests.unit.enode.recovery.lost_files import SMALL, TOPIC, AtRest, Life, disk_of, files_of, made

STARTS = 3
WAYS = ("stopped", "killed", "restored")
OF_ANOTHER = 1000
"""The seed of another store of the same enode, whose segments begin at the same positions."""
CELLS = [(row, harm) for row in FILES for harm in Harm if row.alone[harm] is not Start.ABSENT]


@cache
def at_rest(seed: int, how: str) -> AtRest:
    """One store for all cells of the table."""
    return asyncio.run(made(seed, how))


def harmed(one: AtRest, name: str, harm: Harm, how: str) -> Mapping[str, bytes]:
    """The store's files with one of them harmed."""
    files = dict(one.files)
    if harm is Harm.DELETED:
        del files[name]
    elif harm is Harm.EMPTIED:
        files[name] = b""
    elif harm is Harm.OLDER:
        files[name] = one.older[name]
    else:
        files[name] = at_rest(OF_ANOTHER, how).files[name]
    return files


def test_every_file_has_a_row() -> None:
    """All files of a store are in the table, and two stores have segments at the same positions."""
    for how in WAYS:
        assert undescribed(list(at_rest(1, how).files)) == []
        assert at_rest(1, how).files.keys() == at_rest(OF_ANOTHER, how).files.keys()


@pytest.mark.parametrize(("row", "harm"), CELLS, ids=lambda one: one.name if isinstance(one, StoreFile) else one.value)
def test_a_lost_file_costs_nothing_that_is_not_named(row: StoreFile, harm: Harm) -> None:
    """Three starts behave as in the table, and none takes one message for another."""
    check = {Start.RIGHT: starts_right, Start.REFUSED: refuses, Start.NAMED: names_the_loss}[row.alone[harm]]
    tried = 0
    for how in WAYS:
        one = at_rest(1, how)
        names = names_of(row, list(one.files))
        if harm is Harm.OLDER:  # the newest of the files that changed since, if any
            changed = [name for name in names if one.older[name] != one.files[name]]
            names = changed if changed or row.alone[harm] is Start.NAMED else names
        for name in names[-1:]:
            asyncio.run(check(one, harmed(one, name, harm, how), name))
            tried += 1
    assert tried


def test_a_segment_of_another_store_changes_no_state() -> None:
    """The fold takes nothing from it, not even the messages before the first frame with the other fingerprint."""
    stored = at_rest(1, "killed").files
    starts = segment_bases(list(stored))
    for base, next_base in pairwise(starts):
        name = segment_name(base)
        disk = disk_of({**stored, name: of_another_log(stored[name], base)})
        files = SegmentFiles(disk)
        segments = [Segment(files, FOLDER, one, one) for one in starts]
        for one, end in zip(segments, [*starts[1:], None], strict=True):
            one.end = end
        identity = read_identity(disk, FOLDER)
        assert identity is not None
        fold = StateRefold(segments, (), starts[-1], without_checkpoint=True, log_mark=identity.log_mark)
        assert (base, next_base) in [(hole.position, hole.end_position) for hole in fold.holes]
        assert {topic_id for (topic_id, _), _ in fold.state.ends.all()} <= {TOPIC}


def test_segments_lost_with_all_marks_of_the_log_are_missed() -> None:
    """The vote shows that there was a log. The end in the log summary shows that its last segment existed."""
    for how in ("stopped", "killed"):
        one = at_rest(1, how)
        marks = [name for name in ("clean", "durable") if name in one.files]
        segments = [name for name in one.files if name.endswith(".seg")]
        alone = {name: data for name, data in one.files.items() if name not in (*marks, *segments)}
        asyncio.run(is_missed(alone))
        last = {name: data for name, data in one.files.items() if name not in (*marks, max(segments))}
        asyncio.run(names_the_loss(one, last, max(segments)))
        end = durable_end(disk_of(one.files), FOLDER)  # a start after the loss has made a segment there, and was killed
        begun = {name: data for name, data in one.files.items() if name not in ("clean", max(segments))}
        asyncio.run(names_the_loss(one, {**begun, segment_name(end): bytes(SMALL.segment_bytes)}, max(segments)))


async def test_the_only_segment_lost_with_the_durable_mark_is_missed() -> None:
    """The log summary has no end before a segment is full, but the vote shows that there was a log."""
    life = Life(1)
    store = await life.open()
    await store.put_topics([TopicCopy(TOPIC, "orders", 1, 1)])
    await life.clock.pass_time(1)
    await life.kill()
    left = {name: data for name, data in files_of(life.disk).items() if not name.endswith((".seg", "durable"))}
    await is_missed(left)


async def is_missed(files: Mapping[str, bytes]) -> None:
    """The start is refused until the operator accepts an empty log, whose numbers continue above the lost ones."""
    life = Life(50, disk_of(files))
    with pytest.raises(DataLoss, match="--caches"):
        await life.open()
    for step in remove_caches(life.disk, FOLDER, life.clock, Randomness(9)):
        step.run()
    store = await life.open()
    assert min(store.describe().store_open_number, store.engine.appender.epoch) > OPENINGS_GAP
    await life.kill()


async def refuses(one: AtRest, files: Mapping[str, bytes], name: str) -> None:
    """Each start names the wrong file and changes nothing; with the file restored all data is there."""
    life = Life(50, disk_of(files))
    for _ in range(STARTS):
        with pytest.raises(DataLoss) as refused:
            await life.open()
        assert name in refused.value.message
        left = files_of(life.disk)
        assert left == {name: files[name] for name in left}
        assert all(gone.endswith((".spare", ".tmp")) for gone in files.keys() - left.keys())
    life.disk = disk_of(one.files)
    await life.open()
    assert await life.seen() == (one.acknowledged, set())
    await life.kill()


async def starts_right(one: AtRest, files: Mapping[str, bytes], name: str) -> None:
    """All acknowledged data is there, messages also by their keys, and the data stored between the starts."""
    life, known = Life(50, disk_of(files), keys=dict(one.keys)), dict(one.acknowledged)
    for _ in range(STARTS):
        store = await life.open()
        assert await life.seen() == (known, set())
        assert store.offsets.of(TOPIC, "g") == one.committed
        for queue_id, offset in (min(known), max(known)):
            [found] = await store.find_messages(TOPIC, key=life.keys[queue_id, offset])
            assert (found.queue_id, found.offset) == (queue_id, offset)
        known |= await life.send(3)
        await life.clock.pass_time(1)
        await life.kill()


async def names_the_loss(one: AtRest, files: Mapping[str, bytes], name: str) -> None:
    """The file's data is reported as lost and never replaced; no offset is assigned twice under one store id."""
    gone: set[tuple[int, int]] = set()
    is_end_missing = name not in files and name == max(one for one in one.files if one.endswith(".seg"))
    lowest = OPENINGS_GAP if is_end_missing else 0
    life, known, base = Life(50, disk_of(files)), dict(one.acknowledged), int(name.removesuffix(".seg"))
    for number in range(STARTS):
        store = await life.open()
        assert min(store.describe().store_open_number, store.engine.appender.epoch) > lowest
        found, lost = await life.seen()
        assert [one for one in store.describe().damages if base < one.position + one.length_bytes]
        # A store that was restored and never started has acknowledged nothing under its id.
        is_other = store.describe().store_id != one.store_id
        if number == 0:
            gone = known.keys() - found.keys()
            assert gone
            assert gone <= lost or is_other
            known = {place: text for place, text in known.items() if place not in gone}
        assert found == known
        known |= await life.send(3)
        assert is_other or not known.keys() & gone
        await life.clock.pass_time(1)
        await life.kill()
