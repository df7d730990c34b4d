"""Finding messages by key and by id: through the client, the command and grpcurl."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from ortoo.client import Invalid, Message, NotFound, connect
from ortoo.verification.servers import command, grpcurl
from ortoo.verification.servers.cluster import InProcessCluster, open_cluster


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[InProcessCluster]:
    """Two enodes; the topic t has two queues on each."""
    async with open_cluster(tmp_path, enodes=2) as opened:
        await opened.create_topic("t", queues=2)
        yield opened


async def test_messages_are_found_by_key_on_all_enodes(cluster: InProcessCluster) -> None:
    """E-213: the newest first, in a time range, at most `messages_max`, each whole."""
    async with connect(cluster.address) as mq:
        async with mq.producer("t") as producer:
            receipts = [
                await producer.send(Message(b"%d" % n, "tag", ("same", f"own-{n}"), message_group=f"group-{n}"))
                for n in range(12)
            ]
        assert {receipt.queue.enode for receipt in receipts} == {"enode-0", "enode-1"}
        found = await mq.admin.find_messages("t", key="same")
        assert {it.message_id for it in found.messages} == {receipt.message_id for receipt in receipts}
        assert found.unreachable_enodes == ()
        times = [it.stored_at_ms for it in found.messages]
        assert times == sorted(times, reverse=True)
        assert (await mq.admin.find_messages("t", key="same", limit=3)).messages == found.messages[:3]
        middle = times[5]
        before = await mq.admin.find_messages("t", key="same", end_ms=middle)
        assert [it.stored_at_ms for it in before.messages] == [at for at in times if at < middle]
        later = await mq.admin.find_messages("t", key="same", begin_ms=middle)
        assert [it.stored_at_ms for it in later.messages] == [at for at in times if at >= middle]
        (own,) = (await mq.admin.find_messages("t", key="own-4")).messages
        assert (own.message_id, own.message.body) == (receipts[4].message_id, b"4")
        assert (await mq.admin.find_messages("t", key="nobody")).messages == ()


async def test_a_message_is_found_by_the_id_of_its_receipt_or_its_own(cluster: InProcessCluster) -> None:
    """E-212: an id that encodes the place of a message leads there. A chosen one is looked up."""
    async with connect(cluster.address) as mq:
        async with mq.producer("t") as producer:
            plain = await producer.send(Message(b"plain"))
            named = await producer.send(Message(b"named", message_id="my-own-id"))
        (first,) = (await mq.admin.find_messages("t", message_id=plain.message_id)).messages
        assert (first.message.body, first.queue, first.offset) == (b"plain", plain.queue, plain.offset)
        (second,) = (await mq.admin.find_messages("t", message_id="my-own-id")).messages
        assert (second.message.body, second.queue, second.offset) == (b"named", named.queue, named.offset)
        not_there = plain.message_id.rsplit("-", 1)[0] + "-999"
        assert (await mq.admin.find_messages("t", message_id=not_there)).messages == ()


async def test_wrong_searches_are_named(cluster: InProcessCluster) -> None:
    """Both or none of key and id, too many messages, an unknown topic."""
    async with connect(cluster.address) as mq:
        for wrong in ({}, {"key": "k", "message_id": "i"}):
            with pytest.raises(Invalid, match="key"):
                await mq.admin.find_messages("t", **wrong)  # type: ignore[arg-type]
        with pytest.raises(Invalid, match="limit"):
            await mq.admin.find_messages("t", key="k", limit=1001)
        with pytest.raises(NotFound):
            await mq.admin.find_messages("nope", key="k")


async def test_an_enode_that_is_away_is_named(cluster: InProcessCluster) -> None:
    """The results of the other enodes are returned, and the unreachable enode is named."""
    async with connect(cluster.address) as mq:
        async with mq.producer("t") as producer:
            receipts = [await producer.send(Message(b"x", keys=("k",), message_group=f"g-{n}")) for n in range(12)]
        await cluster.close("enode-1")
        found = await mq.admin.find_messages("t", key="k")
        assert found.unreachable_enodes == ("enode-1",)
        assert len(found.messages) == sum(receipt.queue.enode == "enode-0" for receipt in receipts)


async def test_operators_find_messages_by_command_and_grpcurl(cluster: InProcessCluster) -> None:
    """`ortoo message get` and `find`, for people and programs, and the same by grpcurl."""
    async with connect(cluster.address) as mq, mq.producer("t") as producer:
        receipt = await producer.send(Message(b"hello", "red", ("order-7",)))
    for words in (["get", "t", receipt.message_id], ["find", "t", "--key", "order-7"]):
        outcome = await command.run(["ortoo", "message", *words, "--json"], cluster.address)
        assert outcome.exit_code == 0, outcome.stderr
        shown = json.loads(outcome.stdout)
        assert (shown["message_id"], shown["body"]) == (receipt.message_id, "hello")
        outcome = await command.run(["ortoo", "message", *words], cluster.address)
        assert "hello" in outcome.stdout
        assert receipt.message_id in outcome.stdout
    outcome = await command.run(["ortoo", "message", "get", "t", "nobody"], cluster.address)
    assert outcome.exit_code == 1
    assert "nobody" in outcome.stderr
    answer = await grpcurl.call(cluster.address, "ortoo.v1.AdminService/FindMessages", {"topic": "t", "key": "order-7"})
    (found,) = answer.values()[0]["messages"]
    assert found["body_text"] == "hello"
