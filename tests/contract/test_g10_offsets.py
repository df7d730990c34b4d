"""G10: a committed offset survives every restart of an enode."""

from dataclasses import replace

import pytest

from ortoo.common.errors import Fenced
from ortoo.testing.disks.disk_image import LOSE_UNSYNCED
from tests.contract.one_store import SETTINGS, TOPIC, OneStore


async def test_committed_offsets_survive_stops_and_power_cuts() -> None:
    """G10: the last acknowledged commit of each group and queue is found, also when it went backwards."""
    one = OneStore()
    await one.open()
    expected: dict[str, dict[int, int]] = {"a": {}, "b": {}}
    for number in range(40):
        group = "ab"[number % 2]
        offsets = {number % 3: 100 + number, 2: 50 - number}
        await one.store.offsets.commit(TOPIC, group, offsets)
        expected[group].update(offsets)
        if number % 5 == 4:
            store = await (one.crash(number, LOSE_UNSYNCED) if number % 2 else one.restart())
            assert {name: store.offsets.of(TOPIC, name) for name in "ab"} == expected
    await one.store.close()


async def test_offsets_survive_the_deletion_of_the_segments_they_were_written_in() -> None:
    """G10: retention deletes messages, but never a group's committed offsets."""
    one = OneStore(settings=replace(SETTINGS, retention_bytes=20_000, retention_interval_ms=1000))
    store = await one.open()
    await store.offsets.commit(TOPIC, "early", {0: 3, 1: 4}, 7)
    for number in range(100):
        await one.append(b"%d " % number * 200)
        if number % 10 == 0:
            await one.clock.pass_time(3)
    assert store.describe().log_begin_position > 0
    store = await one.crash(1, LOSE_UNSYNCED)
    assert store.offsets.of(TOPIC, "early") == {0: 3, 1: 4}
    with pytest.raises(Fenced):
        await store.offsets.commit(TOPIC, "early", {0: 9}, 6)
    await one.store.close()
