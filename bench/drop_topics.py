"""The cost of deleting many topics: processor time of the store that holds them."""

import argparse
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from bench.report import Figures, main
from bench.stores import open_store
from ortoo.common.records.batch import encode
from ortoo.enode.changes.groups import GroupMode, ModeSet, RetryCopiesStored
from ortoo.enode.changes.kinds import LocksChanged, OffsetsCommitted, StateChange
from ortoo.enode.changes.pops import PopLeased
from ortoo.enode.log.results import TopicCopy
from ortoo.enode.store.store import Store

METHOD = (
    "a store holds topics, each with a batch of an idempotent producer, a group with offsets, a lock and a released "
    "message. Each topic also has a group that pops. Processor time of the process to delete them all in one call, "
    "and to delete a hundredth of them one by one beside the others"
)
FIRST_ID = 1_000


@asynccontextmanager
async def filled(topics: int) -> AsyncIterator[Store]:
    """A store with `topics` topics."""
    with tempfile.TemporaryDirectory(prefix="ortoo-bench-") as folder:
        async with open_store(Path(folder)) as store:
            ids = range(FIRST_ID, FIRST_ID + topics)
            await store.put_topics([TopicCopy(topic_id, f"topic-{topic_id}", 1, 1) for topic_id in ids])
            changes: list[StateChange] = []
            batch = encode([b"body"], now_ms=1)
            for topic_id in ids:
                await store.append(topic_id, 0, replace(batch, producer_id=topic_id))
                changes += [
                    OffsetsCommitted(topic_id, "pushed", 1, ((0, 1),)),
                    ModeSet(topic_id, "pushed", GroupMode.OFFSETS),
                    LocksChanged(topic_id, "pushed", "client", "session", "snode", ((0, 1),)),
                    RetryCopiesStored(topic_id, "pushed", 0, ((1, 0),)),
                    PopLeased(topic_id, "popped", 0, 1, 1_000, 1_000, ((0, 1, 1),)),
                    ModeSet(topic_id, "popped", GroupMode.POP),
                ]
            await store.engine.store(changes)
            yield store


async def measure(options: argparse.Namespace) -> Figures:
    """Delete some topics one by one, then all others at once."""
    async with filled(options.topics) as store:
        few = range(FIRST_ID, FIRST_ID + max(1, options.topics // 100))
        before_s = time.process_time()
        for topic_id in few:
            await store.delete_topics([topic_id])
        one_by_one_s = time.process_time() - before_s
        before_s = time.process_time()
        await store.delete_topics(range(few.stop, FIRST_ID + options.topics))
        at_once_s = time.process_time() - before_s
        assert len(store.topics()) == 1
    return {
        "topics": options.topics,
        "processor_s": round(one_by_one_s + at_once_s, 3),
        "one_by_one_ms_each": round(1000 * one_by_one_s / len(few), 3),
        "at_once_s": round(at_once_s, 3),
    }


if __name__ == "__main__":
    main("drop_topics", METHOD, measure, topics=20_000)
