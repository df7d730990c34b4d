"""A leader whose disk is slower than those of a majority: frames are committed before they are on its own disk."""

import asyncio
from collections import deque
from dataclasses import replace

from ortoo.common.process.randomness import Randomness
from ortoo.enode.changes.kinds import ExpiredDropped
from ortoo.enode.disk.clean_stop import FILE_NAME as CLEAN_NAME
from ortoo.enode.log.flushing.disk_work import DiskWork, Done
from ortoo.enode.log.flushing.flush_group import FlushGroup
from ortoo.enode.log.settings import FlushMode
from ortoo.enode.replication.membership import ReplicaMembership
from ortoo.enode.replication.replicated_log import ReplicatedLog
from ortoo.verification.store.single_store import SingleStore
from ortoo.verification.store.workload import FOLDER
from tests.contract.one_store import SETTINGS, TOPIC, OneStore, batch
from tests.unit.enode.replication.test_replicated_log import opened_log

TURNS = 20
"""More turns of the event loop than an append needs."""


class HeldWork(DiskWork):
    """Disk work whose writes wait until the test lets one proceed."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop)
        self.held: deque[tuple[FlushGroup, Done]] = deque()

    def flush(self, group: FlushGroup, done: Done) -> None:
        """Hold a write."""
        self.held.append((group, done))

    async def proceed(self) -> int:
        """Let the held write reach the disk; returns its bytes."""
        [(group, done)] = self.held
        self.held.clear()
        super().flush(group, done)
        await settled()
        return sum(len(buffer) for part in group.parts for buffer in part.buffers)


async def settled() -> None:
    """Let the event loop run all tasks until they wait."""
    loop = asyncio.get_running_loop()
    for _ in range(TURNS):
        turn = loop.create_future()
        loop.call_soon(turn.set_result, None)
        await turn


async def leading(one: OneStore) -> tuple[ReplicatedLog, HeldWork]:
    """The open log of a leader. The other disks have each frame at once, and its own disk holds each write."""
    await one.open()
    await one.store.close()
    log = await opened_log(one, ReplicaMembership(one.disk, FOLDER, one.clock, Randomness(1)))
    await log.engine.housekeeping.stop()
    log.engine.appender.commit_limit = 0
    log.start_epoch(1)
    log.start_serving()
    one.store = SingleStore(log.engine)
    work = HeldWork(asyncio.get_running_loop())
    log.engine.appender.work = work
    log.on_appended = lambda end, frames: asyncio.get_running_loop().call_soon(log.commit, end)
    return log, work


async def test_a_disk_that_fails_during_the_close_leaves_no_marker_of_a_clean_stop() -> None:
    """The marker would claim frames that are not on this disk, and the next start would report them as lost."""
    one = OneStore(settings=SETTINGS)
    log, work = await leading(one)
    appender = log.engine.appender
    await one.append(b"committed")
    assert appender.committed_position == appender.appended_position > appender.durable_position
    closing = asyncio.get_running_loop().create_task(log.close())
    await settled()
    one.disk.fail_sync()
    await work.proceed()
    assert appender.failure
    await closing
    assert CLEAN_NAME not in one.disk.list(FOLDER)


async def test_a_write_has_no_more_bytes_than_the_setting() -> None:
    """A write of the whole backlog could last longer than a second, and the disk would count as hanging."""
    flush_bytes_max = 4_000
    one = OneStore(settings=replace(SETTINGS, flush_bytes_max=flush_bytes_max))
    log, work = await leading(one)
    for number in range(30):
        await one.append(b"%d" % number * 500)
    assert log.engine.appender.committed_position == log.engine.appender.appended_position
    sizes = []
    while work.held:
        sizes.append(await work.proceed())
    assert log.engine.appender.durable_position == log.engine.appender.appended_position
    assert max(sizes) < 2 * flush_bytes_max
    assert len(sizes) < 30
    await log.close()


async def test_changes_of_the_state_wait_for_a_disk_that_is_far_behind() -> None:
    """They are not refused as messages are, so they would fill the memory while the disk hangs."""
    pending_bytes_max = 20_000
    one = OneStore(settings=replace(SETTINGS, pending_bytes_max=pending_bytes_max))
    log, work = await leading(one)
    appender = log.engine.appender

    async def store() -> None:
        for number in range(1_000):
            await log.engine.store([ExpiredDropped(0, number)])

    storing = asyncio.get_running_loop().create_task(store())
    for _ in range(1_000):
        await settled()
    assert not storing.done()
    assert appender.appended_position - appender.durable_position < 2 * pending_bytes_max
    while work.held or not storing.done():
        await work.proceed()
    await storing
    await log.close()


async def test_a_send_for_one_disk_does_not_wait_longer_than_for_a_majority() -> None:
    """A send with FLUSH_MODE_ASYNC waits for the leader's disk, or for its commit if that comes first."""
    one = OneStore(settings=SETTINGS)
    log, work = await leading(one)
    sending = asyncio.get_running_loop().create_task(
        one.store.append(TOPIC, 0, batch(b"sent"), flush_mode=FlushMode.ASYNC)
    )
    await settled()
    assert sending.done()
    while work.held:
        await work.proceed()
    await log.close()


async def test_an_enode_accepts_messages_when_the_machine_has_stalled_during_a_write() -> None:
    """The end of the write is noticed a moment after the stall. Before, the enode was not ready at that moment."""
    one = OneStore(settings=SETTINGS)
    log, work = await leading(one)
    await one.append(b"x")
    one.clock.advance(5)
    assert one.store.describe().writable
    for _ in range(2):
        one.clock.advance(0.5)
        one.store.describe()
    assert one.store.describe().reason == "the disk does not answer"
    await work.proceed()
    assert one.store.describe().writable
    await log.close()
