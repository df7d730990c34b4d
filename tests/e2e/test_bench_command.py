"""`ortoo bench`: its figures agree with the topic."""

import json
from pathlib import Path

from ortoo.client import connect
from ortoo.verification.servers import command
from ortoo.verification.servers.cluster import open_cluster


async def test_a_topic_is_measured(tmp_path: Path) -> None:
    """Each acknowledged message is stored and read. A rate limits the number of messages."""
    async with open_cluster(tmp_path) as cluster, connect(cluster.address) as mq:
        await mq.admin.create_topic("t")
        arguments = ["ortoo", "bench", "t", "--seconds", "2", "--rate", "20", "--size", "100", "--json"]
        done = await command.run(arguments, cluster.address, timeout_s=120)
        assert done.exit_code == 0, done.stderr
        found = json.loads(done.stdout)
        assert (found["sent"], found["read"], found["failed"], found["error"]) == ("40", "40", "0", None)
        assert 0 < found["latency_p50_ms"] <= found["latency_p99_ms"] <= found["latency_max_ms"]
        stored = [one async for one in mq.admin.tail("t", from_beginning=True, follow=False)]
        assert [(len(one.message.body), one.message.tag) for one in stored] == [(100, "ortoo-bench")] * 40
        arguments = ["ortoo", "bench", "t", "--seconds", "0.5", "--no-read"]
        done = await command.run(arguments, cluster.address, timeout_s=120)
        assert "messages/s" in done.stdout
        assert "read" not in done.stdout


async def test_a_topic_that_takes_no_messages_is_named(tmp_path: Path) -> None:
    """The command ends with the reason."""
    async with open_cluster(tmp_path) as cluster, connect(cluster.address) as mq:
        await mq.admin.create_topic("t")
        await mq.admin.update_topic("t", permission="read_only")
        done = await command.run(["ortoo", "bench", "t", "--seconds", "0.5"], cluster.address, timeout_s=120)
        assert done.exit_code == 1
        assert "the topic 't' has no queue that accepts messages" in done.stderr
