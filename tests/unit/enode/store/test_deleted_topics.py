"""Topics that are deleted during sends."""

import asyncio
from dataclasses import replace

from ortoo.common.process.background import Background
from ortoo.enode.log.results import TopicCopy
from ortoo.enode.log.settings import FlushMode
from ortoo.enode.store.batch_write import BatchWrite
from tests.contract.one_store import SETTINGS, OneStore, batch

GOING = 6


async def test_what_is_stored_behind_a_deletion_that_was_called_off_ends_no_store() -> None:
    """If the deleting client disconnects before the deletion is durable, the topic takes batches until then."""
    one = OneStore(settings=replace(SETTINGS, threads=True))
    store = await one.open()
    await store.put_topics([TopicCopy(GOING, "going", 1, 1)])
    handed_over = asyncio.Event()
    store.engine.appender.on_submitted = lambda group: handed_over.set()
    one.disk.gate.clear()
    async with Background("test") as background:
        deleting = background.spawn("delete", store.delete_topics([GOING]))
        await handed_over.wait()
        deleting.cancel()
        await asyncio.wait([deleting])
    late = store.begin(BatchWrite(GOING, 0, batch(b"late")), FlushMode.SYNC)
    one.disk.gate.set()
    assert late is not None
    await late
    assert store.topic(GOING) is None
    while len(store.engine.catalog.segments) < 3:
        await one.append(b"x" * 500)
    assert store.describe().reason == ""
    before = await one.texts()
    await one.restart()
    assert await one.texts() == before
    await one.store.close()
