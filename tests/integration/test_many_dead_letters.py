"""Among many dead letters, a page costs its own size, and a parked message is found whatever its age."""

from dataclasses import replace
from pathlib import Path

from bench.dead_letters import park_many
from ortoo.client import Queue, connect
from ortoo.verification.servers.cluster import SMALL_STORE, open_cluster
from ortoo.verification.servers.ports import free_address
from ortoo.verification.servers.scrape import scraped

LETTERS, PAGE = 2_000, 10
BATCHES_MAX = 400
"""About two reads of the smallest size. A read without limit has 512 batches, and the next one follows it."""


async def test_a_page_reads_few_more_dead_letters_than_it_shows(tmp_path: Path) -> None:
    """Each dead letter is a batch. The enode reads about as many of them on the first page as in the middle."""
    metrics = free_address()
    async with (
        open_cluster(tmp_path, settings={"enode": {"metrics_address": metrics}}) as cluster,
        connect(cluster.address) as mq,
    ):
        queue = await park_many(mq, "g", "failing", LETTERS)

        async def batches() -> float:
            series = await scraped(metrics)
            return sum(series[f"ortoo_batches_from_{place}_total"][()] for place in ("memory", "disk"))

        for offset in (-1, LETTERS // 2):
            after = (Queue("%DLQ%g", queue.enode, 0), offset) if offset >= 0 else None
            before = await batches()
            letters = mq.admin.list_dead_letters("g", dead_letters_max=PAGE, include_replayed=True, after=after)
            assert [one.offset async for one in letters] == list(range(offset + 1, offset + 1 + PAGE))
            assert await batches() - before < BATCHES_MAX


async def test_a_message_that_was_parked_long_ago_is_explained(tmp_path: Path) -> None:
    """Its dead letter is older than those that a list of states examines."""
    async with open_cluster(tmp_path) as cluster, connect(cluster.address) as mq:
        queue = await park_many(mq, "g", "failing", LETTERS)
        [batch] = [one async for one in mq.fetch(queue, 0, 1)]
        explained = await mq.admin.operations.explain_consumption("g", "failing", batch[0].message_id)
        assert explained.delivery is not None
        assert (explained.delivery.state, explained.delivery.error) == ("parked", "asked: broken")


async def test_a_parked_message_is_explained_without_an_index(tmp_path: Path) -> None:
    """An enode without an index of ids cannot search. The newest dead letters are then examined."""
    store = replace(SMALL_STORE, key_index=False)
    async with open_cluster(tmp_path, store=store) as cluster, connect(cluster.address) as mq:
        queue = await park_many(mq, "g", "failing", PAGE)
        [batch] = [one async for one in mq.fetch(queue, 0, 1)]
        explained = await mq.admin.operations.explain_consumption("g", "failing", batch[0].message_id)
        assert explained.delivery is not None
        assert (explained.delivery.state, explained.delivery.error) == ("parked", "asked: broken")
