"""G12: damaged bytes are reported, never served, and never treated as "empty"."""

import pytest

from ortoo.common.errors import DataLoss
from ortoo.enode.log.frame import HEADER_BYTES
from ortoo.verification.store.workload import FOLDER
from tests.contract.one_store import TOPIC, OneStore


@pytest.mark.parametrize("where", ["body", "header"])
@pytest.mark.parametrize("how", ["running", "stopped", "killed"])
async def test_a_damaged_batch_is_named_and_all_others_are_served(where: str, how: str) -> None:
    """For one flipped bit, DATA_LOSS has the file, the position and the next offset; others stay readable (G12)."""
    one = OneStore()
    store = await one.open()
    texts = [b"%02d " % number * 300 for number in range(30)]
    for text in texts:
        await one.append(text)
    await one.clock.pass_time(1)
    name, position = _place_of(one, texts[4])
    at = position + (5 if where == "body" else 40 - HEADER_BYTES)
    if how == "stopped":
        await one.restart()
    one.disk.flip_bit(FOLDER / name, at)
    if how == "killed":
        flipped = one.disk.open(FOLDER / name).read(at, 1)
        one.disk.inner.open(FOLDER / name).write(at, [flipped])
        one.disk.inner.open(FOLDER / name).sync_data()
        await one.crash(1)
    store = one.store
    with pytest.raises(DataLoss) as damaged:
        await store.fetch(TOPIC, 0, 4)
    assert name in damaged.value.message
    assert damaged.value.message.endswith("offset 5")
    for number in range(30):
        if number != 4:
            found = (await store.fetch(TOPIC, 0, number, bytes_max=1)).batches
            assert [(found[0].first_offset, found[0].batch.records)] == [(number, texts[number])]
    (named,) = [damage for damage in store.describe().damages if damage.file == name]
    assert named.position <= int(name.split(".")[0]) + at < named.position + named.length_bytes
    assert [(row.topic_id, row.begin_offset, row.end_offset) for row in named.queues] == [(TOPIC, 4, 5)]
    assert store.describe_queues(TOPIC)[0].end_offset == 30
    await store.close()


async def test_a_time_is_found_behind_damage_at_the_end_of_a_segment() -> None:
    """G12: the index rows of the damaged part are lost too, and a search by that time finds the next message."""
    one = OneStore()
    store = await one.open()
    texts = [b"%02d " % number * 300 for number in range(30)]
    stored = []
    for text in texts:
        stored.append(await one.append(text))
        await one.clock.pass_time(0.01)
    await one.clock.pass_time(1)
    run = store.engine.catalog.queues[TOPIC, 0].runs[1]
    assert run.rows is None
    last = run.entry.end_offset - 1
    name, position = _place_of(one, texts[last])
    one.disk.flip_bit(FOLDER / name, position - HEADER_BYTES + 40)
    one.disk.flip_bit(FOLDER / name.replace(".seg", ".idx"), run.entry.block_at)
    assert await store.find_offset(TOPIC, 0, stored[last].stored_at_ms) == last + 1
    assert await store.find_offset(TOPIC, 0, stored[last - 1].stored_at_ms) == last - 1
    await store.close()


def _place_of(one: OneStore, text: bytes) -> tuple[str, int]:
    """The segment file that holds a batch, and its position there."""
    for name in one.disk.list(FOLDER):
        if name.endswith(".seg"):
            file = one.disk.open(FOLDER / name)
            at = file.read(0, file.size_bytes()).find(text)
            if at >= 0:
                return name, at
    raise LookupError(text)
