"""`ortoo top`, `--explain` and completion, as people use them."""

import asyncio
import json
import shlex

import pytest
from typer.testing import CliRunner

from ortoo.cli.app import app
from ortoo.cli.terminal import completion
from ortoo.client import connect
from ortoo.verification.servers import command, grpcurl
from ortoo.verification.servers.cluster import InProcessCluster


async def test_top_shows_what_flows(cluster: InProcessCluster) -> None:
    """Each refresh shows topics with their messages, for people and as JSON."""
    async with connect(cluster.address) as mq:
        await mq.admin.create_topic("t")
        async with mq.producer("t") as producer:
            await producer.send(b"x")
    looks = await command.run(["ortoo", "top", "-n", "2", "--interval", "0.2", "--json"], cluster.address)
    seen = [json.loads(line) for line in looks.stdout.splitlines()]
    assert [look["topics"][0]["messages"] for look in seen] == ["1", "1"]
    shown = await command.run(["ortoo", "top", "-n", "1"], cluster.address)
    assert shown.stdout.startswith("1 enode, 1 snode, 1 topic, 0 groups\n")


async def test_explained_command_does_the_same(cluster: InProcessCluster) -> None:
    """`--explain` prints each call as a grpcurl command; run by hand it answers the same."""
    done = await command.run(["ortoo", "--explain", "topic", "create", "t", "--queues", "3"], cluster.address)
    assert (done.exit_code, done.stdout) == (0, "topic t is ready with 3 queues\n")
    described = await command.run(["ortoo", "--explain", "topic", "describe", "t"], cluster.address)
    explained = described.stderr.strip()
    assert explained.startswith("# grpcurl -plaintext -d ")
    words = shlex.split(explained.removeprefix("# grpcurl "))
    answer = (await grpcurl.grpcurl(*words)).values()[0]
    assert answer["topic"]["name"] == "t"
    assert len(answer["queues"]) == 3


async def test_shell_completion_is_there() -> None:
    """The command offers completion for the shells."""
    helped = await command.run(["ortoo", "--help"], "")
    assert "--install-completion" in helped.stdout


async def test_shell_completion_offers_what_the_cluster_has(
    cluster: InProcessCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Topics, groups and enodes where a command takes them, deleted ones where they can be restored."""
    monkeypatch.setattr(completion, "TIMEOUT_S", 60.0)
    async with connect(cluster.address) as mq:
        for topic in ("orders", "orders-eu", "steps", "old"):
            await mq.admin.create_topic(topic)
        await mq.admin.delete_topic("old")
        await mq.admin.put_group("billing")

    def offered(words: str) -> list[str]:
        environ = {"_ORTOO_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
        environ |= {"ORTOO_ADDRESS": cluster.address}
        return CliRunner().invoke(app, [], env=environ, prog_name="ortoo").output.split()

    for words, names in (
        ("ortoo topic describe or", ["orders", "orders-eu"]),
        ("ortoo send ", ["orders", "orders-eu", "steps"]),
        ("ortoo topic undelete ", ["old"]),
        ("ortoo lag b", ["billing"]),
        ("ortoo lag billing s", ["steps"]),
        ("ortoo peek orders --group ", ["billing"]),
        ("ortoo enode drain e", ["enode-0"]),
        ("ortoo topic create or", []),
    ):
        assert await asyncio.to_thread(offered, words) == names, words
