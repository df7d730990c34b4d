"""`ortoo sink list`, `describe` and `reset`, their rights and their entries in the audit."""

import json
from pathlib import Path

import pytest

from ortoo.client import Client, Conflict, Invalid, NotFound, Queue, connect
from ortoo.client.core.wire import wire_queue
from ortoo.common.groups.sinks import SinkAccount, sink_group
from ortoo.v1 import pull_pb2, sink_pb2
from ortoo.v1.consumer_pb2_grpc import ConsumerServiceStub
from ortoo.verification.servers import command
from ortoo.verification.servers.cluster import InProcessCluster, open_cluster


async def typed(cluster: InProcessCluster, *words: str) -> command.CommandResult:
    """The result of a command."""
    return await command.run(["ortoo", *words], cluster.address, timeout_s=120)


async def commit(
    mq: Client, topic: str, sink_id: str, query_id: str, batch_id: int, *, is_named: bool = True, enode: str = "enode-0"
) -> None:
    """Commit a batch as a sink does; without names as an older client."""
    place = pull_pb2.ConsumerOffset(
        queue=wire_queue(Queue(topic, enode, 0)), offset=SinkAccount.of_query(query_id, batch_id).offset
    )
    names = sink_pb2.SinkIdentity(sink_id=sink_id, query_id=query_id) if is_named else None
    request = pull_pb2.CommitConsumerOffsetsRequest(group=sink_group(sink_id), offsets=[place], sink=names)
    await mq._connection.call(ConsumerServiceStub, "CommitOffsets", request)


async def test_sinks_are_listed_described_and_reset(tmp_path: Path) -> None:
    """Each by name, and accounts of older clients by the name of their group. Groups of consumers are no sinks."""
    async with open_cluster(tmp_path) as cluster, connect(cluster.address) as mq:
        for topic in ("a", "b"):
            await mq.admin.create_topic(topic, queue_count=1)
        await commit(mq, "a", "copy", "query-1", 41)
        await commit(mq, "b", "copy", "query-2", 0)
        await commit(mq, "b", "old", "query-3", 5, is_named=False)
        assert (await typed(cluster, "send", "a", "x")).exit_code == 0
        assert (await typed(cluster, "consume", "billing", "a", "-n", "1", "--from-first")).exit_code == 0
        old = sink_group("old")
        listed = (await typed(cluster, "sink", "list")).stdout
        assert [line.split()[:4] for line in listed.splitlines()[1:]] == [
            ["a", "copy", "query-1", "41"],
            ["b", old, "unknown", "5"],
            ["b", "copy", "query-2", "0"],
        ]
        of_b = (await typed(cluster, "sink", "list", "--topic", "b", "--json")).stdout.splitlines()
        assert [json.loads(line)["account"] for line in of_b] == [old, sink_group("copy")]
        assert (await mq.admin.groups.describe_topic_groups("a")).with_offsets == ("billing",)
        described = (await typed(cluster, "sink", "describe", "a", "copy")).stdout
        assert "query id  query-1" in described
        assert "state     open" in described
        assert "batch     0\n" in (await typed(cluster, "sink", "describe", "b", "copy")).stdout
        done = await typed(cluster, "sink", "reset", "a", "copy")
        assert done.stdout == "sink copy of a is reset after batch 41; another query may begin\n"
        assert json.loads((await typed(cluster, "sink", "describe", "a", "copy", "--json")).stdout)["reset"] is True
        again = await mq.admin.sinks.reset("a", "copy")
        assert (again.batch_id, again.reset, again.query_id) == (41, True, "query-1")
        await commit(mq, "a", "copy", "query-4", -1)
        assert "batch     none\n" in (await typed(cluster, "sink", "describe", "a", "copy")).stdout
        (untouched,) = (await mq.admin.sinks.list("b", "copy")).sinks
        assert not untouched.reset
        assert (await mq.admin.sinks.reset("b", "old")).sink_id == "old"
        audit = (await typed(cluster, "audit")).stdout
        assert "topic=a sink_id=copy" in audit
        assert "ResetSink" in audit
        with pytest.raises(NotFound, match=r"topic a has no exactly-once sink 'none'; list its sinks with"):
            await mq.admin.sinks.reset("a", "none")
        with pytest.raises(NotFound, match="no-such-topic"):
            await mq.admin.sinks.list("no-such-topic")
        for topic, sink in (("", "copy"), ("a", "")):
            with pytest.raises(Invalid, match="is missing"):
                await mq.admin.sinks.reset(topic, sink)
        with pytest.raises(Invalid, match="is the account of a sink; use `ortoo sink reset`"):
            await mq.admin.groups.reset_offsets(old, "b", offset=0, force=True)
        with pytest.raises(Invalid, match="is the account of a sink"):
            await mq.admin.groups.clone_offsets("billing", old, "a")
        unknown = await typed(cluster, "sink", "describe", "a", "none")
        assert unknown.exit_code == 1
        assert "ortoo sink list --topic a" in unknown.stderr


async def test_a_reset_also_counts_at_the_enode_that_gets_the_next_commit(tmp_path: Path) -> None:
    """The first enode of the topic was added after the last commit. A commit on its way does not undo the reset."""
    async with open_cluster(tmp_path, enodes=2) as cluster, connect(cluster.address) as mq:
        await mq.admin.create_topic("a", queue_count=1)
        await commit(mq, "a", "copy", "query-1", 4, enode="enode-1")
        await mq.admin.sinks.reset("a", "copy")
        with pytest.raises(Conflict, match="an operator reset the sink after batch 4"):
            await commit(mq, "a", "copy", "query-1", 5)
        (found,) = (await mq.admin.sinks.list()).sinks
        assert (found.enode, found.query_id, found.reset) == ("enode-0", "query-1", True)
