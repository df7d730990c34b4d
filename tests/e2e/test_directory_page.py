"""docs/operations/directory.md: its commands, one after another, at what it tells about."""

import asyncio
import shutil
from pathlib import Path

from ortoo.testing.servers import command
from ortoo.testing.servers.cluster import Cluster, open_cluster
from ortoo.v1 import namesrv_pb2 as pb
from tests.e2e.test_documents import says, steps

LOST_BEFORE = (0, 3)
"""The steps of the page before which the database is lost: in its first section, and by going to another database."""


async def lose_the_database(cluster: Cluster) -> None:
    """Start the name server with an empty folder, and wait for the enode."""
    await cluster.close("namesrv-0")
    shutil.rmtree(cluster.folder / "namesrv")
    await cluster.open_namesrv()
    async with asyncio.timeout(20):
        async for news in cluster.name_service.WatchRoutes(pb.WatchRoutesRequest()):
            if any(enode.alive for enode in news.enodes):
                return


async def test_the_page_is_true_step_by_step(tmp_path: Path) -> None:
    """B-020, B-022: each command ends with 0 and prints what the page says, and the message is there in the end."""
    async with open_cluster(tmp_path) as cluster:
        await cluster.create_topic("orders")
        sent = await command.run(["ortoo", "send", "orders", "hello"], cluster.address)
        assert sent.exit_code == 0, sent
        for number, (words, expected) in enumerate(steps("operations/directory.md")):
            if number in LOST_BEFORE:
                await lose_the_database(cluster)
            outcome = await command.run(words.split(), cluster.address)
            assert outcome.exit_code == 0, (words, outcome)
            assert says(outcome.out, expected), (words, outcome)
        assert number == 6
        found = await command.run(["ortoo", "tail", "orders", "--from-first", "--no-follow"], cluster.address)
        assert "hello" in found.out, found
        listed = await command.run(["ortoo", "topic", "deleted"], cluster.address)
        assert "orders" not in listed.out
