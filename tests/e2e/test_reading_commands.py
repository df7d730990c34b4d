"""`ortoo tail` from a position, `ortoo consume` with acknowledgements, and `ortoo bundle` without secrets."""

import tarfile
from datetime import UTC, datetime
from pathlib import Path

from ortoo.client import Message, connect
from ortoo.verification.servers import command
from ortoo.verification.servers.cluster import InProcessCluster, open_cluster

SECRET = "the secret of a user"


async def typed(cluster: InProcessCluster, *words: str) -> list[str]:
    """The lines that a command prints."""
    done = await command.run(["ortoo", *words], cluster.address, timeout_s=120)
    assert done.exit_code == 0, done.stderr
    return done.stdout.splitlines()


async def test_tail_begins_where_it_is_told(tmp_path: Path) -> None:
    """At an offset, at a time, or with the last messages; details have the place, the tag, the keys and properties."""
    async with open_cluster(tmp_path) as cluster, connect(cluster.address) as mq:
        await mq.admin.create_topic("t", queue_count=1)
        async with mq.producer("t") as producer:
            for number in range(5):
                await producer.send(b"%d" % number)
            middle = await producer.send(Message(b"5", "red", ("k",), properties={"a": "b"}))
            stored = [one async for one in mq.admin.tail("t", from_beginning=True, follow=False)]
            while cluster.clock.now_ms() <= stored[-1].stored_at_ms:
                await cluster.clock.sleep(0.001)
            later_ms = cluster.clock.now_ms()
            await producer.send(b"6")
        when = datetime.fromtimestamp(later_ms / 1000, UTC).isoformat()
        assert await typed(cluster, "tail", "t", "--from", "4", "--no-follow") == ["4", "5", "6"]
        assert await typed(cluster, "tail", "t", "--from", when, "--no-follow") == ["6"]
        assert await typed(cluster, "tail", "t", "--from", "end", "--no-follow") == []
        assert await typed(cluster, "tail", "t", "--from", "5", "-n", "2") == ["5", "6"]
        assert await typed(cluster, "tail", "t", "--last", "2", "--no-follow") == ["5", "6"]
        (line,) = await typed(cluster, "tail", "t", "--from", str(middle.offset), "-n", "1", "--details")
        assert line.endswith("Z enode-0/0@5 tag=red keys=k a=b | 5")


async def test_consume_acknowledges_what_it_has_printed(tmp_path: Path) -> None:
    """The next member of the group continues behind the printed messages."""
    async with open_cluster(tmp_path) as cluster, connect(cluster.address) as mq:
        await mq.admin.create_topic("t", queue_count=1)
        async with mq.producer("t") as producer:
            for number in range(5):
                await producer.send(b"%d" % number)
        assert await typed(cluster, "consume", "g", "t", "-n", "2", "--from-first") == ["0", "1"]
        assert await typed(cluster, "consume", "g", "t", "-n", "3") == ["2", "3", "4"]
        lag = await mq.admin.describe_lag("g", "t")
        assert lag.lag_messages == 0
        waiting = ["ortoo", "consume", "g", "t"]
        async with mq.producer("t") as producer:
            await producer.send(b"five")
        done = await command.run(waiting, cluster.address, until_output="five", timeout_s=120)
        assert (done.exit_code, done.stdout) == (0, "five\n")


async def test_a_bundle_has_the_state_and_no_secret(tmp_path: Path) -> None:
    """The parts of a cluster are in one file; passwords of settings and bodies of messages are not."""
    settings = {"snode": {"trace_topic": ""}, "namesrv": {}}
    async with open_cluster(tmp_path / "cluster", settings=settings) as cluster, connect(cluster.address) as mq:
        await mq.admin.create_topic("t")
        await mq.admin.users.put("ann", secret_key=SECRET)
        async with mq.producer("t") as producer:
            await producer.send(b"the body of a message")
        file = tmp_path / "bundle.tar.gz"
        (line,) = await typed(cluster, "bundle", str(file))
        assert line.startswith(f"wrote {file}")
    with tarfile.open(file) as archive:
        parts = {Path(name).name: archive.extractfile(name) for name in archive.getnames()}
        texts = {name: part.read().decode() for name, part in parts.items() if part is not None}
    assert {"version.txt", "cluster.jsonl", "findings.jsonl", "topics.jsonl", "settings-snode.jsonl"} <= texts.keys()
    assert '"ann"' in texts["users.jsonl"]
    assert '"t"' in texts["topics.jsonl"]
    assert not [name for name, text in texts.items() if SECRET in text or "the body" in text]
