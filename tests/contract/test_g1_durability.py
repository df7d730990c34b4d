"""G1: an acknowledged message is never lost by a crash."""

import pytest

from ortoo.common.errors import Unavailable
from ortoo.enode.log.settings import FlushMode
from ortoo.testing.disks.disk_image import LOSE_UNSYNCED
from ortoo.verification.store.crash_points import OUTCOMES
from tests.contract.one_store import SETTINGS, TOPIC, OneStore, batch


async def test_what_was_acknowledged_is_there_after_every_power_cut() -> None:
    """G1: the disk may lose any unsynced bytes, and acknowledged messages are found with their offsets and bytes."""
    one = OneStore()
    await one.open()
    expected = []
    for number in range(60):
        text = b"%d " % number * 150
        expected.append(((await one.append(text)).first_offset, text))
        if number % 6 == 0:
            await one.crash(number, OUTCOMES[number // 6 % len(OUTCOMES)])
            assert await one.texts() == expected
    await one.store.close()


async def test_an_answer_waits_for_the_disk() -> None:
    """G1: after a failed sync nothing is acknowledged until the store is opened again."""
    one = OneStore()
    store = await one.open()
    await one.append(b"kept")
    one.disk.fail_sync()
    with pytest.raises(Unavailable, match="unknown"):
        await one.append(b"lost")
    with pytest.raises(Unavailable):
        await one.append(b"later")
    assert not store.describe().writable
    await one.crash(1, LOSE_UNSYNCED)
    assert await one.texts() == [(0, b"kept")]
    assert (await one.append(b"next")).first_offset == 1
    await one.store.close()


@pytest.mark.parametrize("seed", range(10))
def test_mode_async_loses_a_suffix_of_one_interval_at_most(seed: int) -> None:
    """E-215: after any power cut, the remaining messages are the first ones, including all earlier intervals."""
    one = OneStore()

    async def send_and_crash() -> None:
        store = await one.open()
        sent: list[tuple[int, bytes]] = []
        for number in range(20):
            sent.append((number, b"%d " % number * 100))
            await store.append(TOPIC, 0, batch(sent[-1][1]), flush_mode=FlushMode.ASYNC)
            await one.clock.sleep(0.05)
        await one.crash(seed, OUTCOMES[seed % len(OUTCOMES)])
        left = await one.texts()
        assert left == sent[: len(left)]
        assert len(left) >= len(sent) - SETTINGS.flush_interval_ms / 50 - 1
        await one.store.close()

    one.clock.run(send_and_crash)


async def test_mode_async_says_so_and_shows_nothing_that_a_crash_takes_back() -> None:
    """G1: without waiting for the disk the answer says `async`, and readers see the message only once it is durable."""
    one = OneStore()
    store = await one.open()
    answer = await store.append(TOPIC, 0, batch(b"quick"), flush_mode=FlushMode.ASYNC)
    assert answer.flush_mode is FlushMode.ASYNC
    assert await one.texts() == []
    synced = await store.append(TOPIC, 1, batch(b"careful"), flush_mode=FlushMode.SYNC)
    assert synced.flush_mode is FlushMode.SYNC
    assert await one.texts() == [(0, b"quick")]
    await one.crash(3, LOSE_UNSYNCED)
    assert await one.texts() == [(0, b"quick")]
    await one.store.close()
