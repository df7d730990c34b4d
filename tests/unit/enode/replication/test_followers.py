"""What a store that waits for a replica takes as true: what is committed, not what is on its own disk alone."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from ortoo.common.process.randomness import Randomness
from ortoo.enode.replication.followers import Follower, Followers
from ortoo.testing.disks.disk_image import KEEP_EVERYTHING
from ortoo.testing.disks.faulty_disk import FaultyDisk
from tests.contract.one_store import SETTINGS, TOPIC, OneStore

GROUP = "g"


async def _durable_beyond(one: OneStore, position: int) -> None:
    """Wait until the store's own disk has more than that."""
    appender, grew = one.store.engine.appender, asyncio.Event()
    appender.advanced[grew] = None
    while appender.durable_position <= position:
        grew.clear()
        await grew.wait()
    del appender.advanced[grew]


async def _waiting(one: OneStore) -> tuple[Followers, Follower]:
    """A store that waits for a replica, which has everything so far."""
    followers = Followers(one.store.engine.appender, is_waited_for=True)
    follower = Follower(1, "", one.store.engine.appender.durable_position)
    followers.join(follower)
    return followers, follower


async def _held(one: OneStore, doing: Callable[[], Awaitable[object]]) -> "asyncio.Future[object]":
    """Something that the store's own disk has, and that waits for the replica."""
    position = one.store.engine.appender.durable_position
    waiting = asyncio.ensure_future(doing())  # noqa: TID251
    await _durable_beyond(one, position)
    return waiting


async def test_a_checkpoint_holds_only_what_is_committed() -> None:
    """B-040: an offset that was acknowledged while a checkpoint was written is there after a power cut."""
    one = OneStore(settings=SETTINGS)
    await one.open()
    await one.append(b"a message")
    followers, follower = await _waiting(one)
    appender, housekeeping = one.store.engine.appender, one.store.engine.housekeeping
    committed = appender.committed_position
    commit = await _held(one, lambda: one.store.offsets.commit(TOPIC, GROUP, {0: 1}))
    checkpoint = await _held(one, housekeeping.checkpoint)
    assert not commit.done()
    assert appender.committed_position == committed < appender.durable_position
    followers.has(follower, appender.durable_position)
    await asyncio.gather(commit, checkpoint)
    assert housekeeping.checkpoints[-1] == committed
    disk = FaultyDisk(one.disk.crashed(Randomness(1), KEEP_EVERYTHING))
    followers.end()
    await one.store.close()
    again = OneStore(disk=disk, settings=SETTINGS)
    await again.open()
    assert again.store.offsets.of(TOPIC, GROUP) == {0: 1}
    await again.store.close()


@pytest.mark.parametrize("waits", [False, True])
async def test_committed_is_durable_unless_a_replica_is_waited_for(waits: bool) -> None:
    """With one copy the two are the same after each flush; with a replica the committed position waits for it."""
    one = OneStore(settings=SETTINGS)
    await one.open()
    appender = one.store.engine.appender
    followers = Followers(appender, is_waited_for=False)
    if waits:
        followers, follower = await _waiting(one)
        before = appender.committed_position
        append = await _held(one, lambda: one.append(b"a message"))
        assert appender.committed_position == before
        followers.has(follower, appender.durable_position)
        await append
    else:
        await one.append(b"a message")
    assert appender.committed_position == appender.durable_position == appender.appended_position
    followers.end()
    await one.store.close()
