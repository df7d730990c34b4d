"""An enode and a name server: registration, copies of topics, and either of them down."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest

from ortoo.common.errors import NotFound, OrtooError
from ortoo.common.errors.status import rpc_errors
from ortoo.common.records.batch import encode
from ortoo.v1 import enode_pb2 as pb
from ortoo.v1 import enode_pb2_grpc, namesrv_pb2, topic_pb2
from ortoo.verification.servers.cluster import InProcessCluster, open_cluster
from ortoo.verification.servers.lone_enode import append_request

BATCH = encode([b"x"] * 10, now_ms=1)
HASTE = {"enode": {"heartbeat_interval_s": 0.2}, "namesrv": {"lease_s": 3.0, "expiry_interval_s": 0.05}}


@pytest.fixture
async def pair(tmp_path: Path) -> AsyncIterator[InProcessCluster]:
    """A name server and one enode."""
    async with open_cluster(tmp_path, snodes=0, settings=HASTE) as opened:
        await alive(opened, "enode-0")
        yield opened


async def alive(cluster: InProcessCluster, name: str, *, expected: bool = True) -> topic_pb2.Enode:
    """Wait until the name server reports that an enode is alive, or not."""
    async with asyncio.timeout(60):
        while True:
            try:
                async for news in cluster.name_service.WatchRoutes(namesrv_pb2.WatchRoutesRequest()):
                    for enode in news.enodes:
                        if enode.name == name and enode.alive is expected:
                            return enode
            except grpc.aio.AioRpcError:
                continue


async def appended(cluster: InProcessCluster, topic_id: int, queue_id: int = 0) -> pb.AppendResponse:
    """Append one batch."""
    call = enode_pb2_grpc.EnodeServiceStub(cluster.channels.channel_to(cluster.address_of("enode-0"))).Append()
    await call.write(append_request(1, topic_id, queue_id, BATCH))
    async with asyncio.timeout(60):
        answer = await call.read()
    assert isinstance(answer, pb.AppendResponse)
    call.cancel()
    return answer


async def test_enode_registers_with_its_address_and_store(pair: InProcessCluster) -> None:
    """The name server knows the enode's name, its address, and the id of its store."""
    enode = await alive(pair, "enode-0")
    assert enode.address == pair.running["enode-0"].address
    assert enode.store_id


async def test_new_topic_takes_messages_at_once(pair: InProcessCluster) -> None:
    """As soon as CreateTopic has answered, an append succeeds; one to another id or queue is NotFound by field."""
    topic = await pair.create_topic("t", queues=2)
    assert (await appended(pair, topic.topic_id)).first_offset == 0
    for topic_id, queue_id, field in ((topic.topic_id ^ 1, 0, "topic_id"), (topic.topic_id, 2, "queue_id")):
        refused = await appended(pair, topic_id, queue_id)
        assert refused.failure.field == field
        assert refused.failure.message


async def test_grown_topic_takes_messages_in_its_new_queues(pair: InProcessCluster) -> None:
    """Queues that UpdateTopic adds can be written at once, and stored messages stay."""
    topic = await pair.create_topic("t", queues=1)
    await appended(pair, topic.topic_id)
    await pair.name_service.UpdateTopic(
        namesrv_pb2.UpdateTopicRequest(name="t", read_queue_count=3, write_queue_count=3)
    )
    assert (await appended(pair, topic.topic_id, 2)).first_offset == 0
    assert (await appended(pair, topic.topic_id, 0)).first_offset == 10


async def test_topic_created_again_starts_empty(pair: InProcessCluster) -> None:
    """Deleted and recreated under the same name, a topic has another id, no messages, and the old id is unknown."""
    old = await pair.create_topic("t")
    await appended(pair, old.topic_id)
    await pair.name_service.DeleteTopic(namesrv_pb2.DeleteTopicRequest(name="t"))
    new = await pair.create_topic("t")
    assert new.topic_id != old.topic_id
    assert (await appended(pair, new.topic_id)).first_offset == 0
    assert (await appended(pair, old.topic_id)).failure.field == "topic_id"


async def test_deletion_while_the_enode_is_away_is_learnt(pair: InProcessCluster) -> None:
    """An enode that reconnects drops the copies of topics whose deletion became due meanwhile."""
    topic = await pair.create_topic("t")
    await appended(pair, topic.topic_id)
    await pair.close("enode-0")
    await pair.name_service.DeleteTopic(namesrv_pb2.DeleteTopicRequest(name="t", skip_grace_period=True))
    running = await pair.open_enode("enode-0")
    await alive(pair, "enode-0")
    other = await pair.create_topic("other")
    assert (await appended(pair, other.topic_id)).first_offset == 0  # so the enode has seen the directory
    assert (await appended(pair, topic.topic_id)).HasField("failure")
    assert [copy.name for copy in running.store.topics()] == ["other"]


async def test_enode_serves_while_the_name_server_is_away(pair: InProcessCluster) -> None:
    """Without a name server known topics work, also after a restart of the enode; changes arrive once it is back."""
    topic = await pair.create_topic("t")
    await appended(pair, topic.topic_id)
    await pair.close("namesrv-0")
    assert (await appended(pair, topic.topic_id)).first_offset == 10
    await pair.close("enode-0")
    await pair.open_enode("enode-0")
    assert (await appended(pair, topic.topic_id)).first_offset == 20
    await pair.open_namesrv()
    await alive(pair, "enode-0")
    other = await pair.create_topic("u")
    assert (await appended(pair, other.topic_id)).first_offset == 0


async def test_clean_stop_gives_the_lease_back(pair: InProcessCluster) -> None:
    """After a graceful stop the name server reports at once that the enode is not alive."""
    await pair.close("enode-0")
    await alive(pair, "enode-0", expected=False)


async def test_enode_started_before_the_name_server_finds_it(tmp_path: Path) -> None:
    """The order of starting does not matter: an enode that starts first registers when the name server comes."""
    async with open_cluster(tmp_path, snodes=0, settings=HASTE) as cluster:
        await cluster.close("enode-0")
        await cluster.close("namesrv-0")
        await cluster.open_enode("enode-0")
        await cluster.open_namesrv()
        await alive(cluster, "enode-0")
        topic = await cluster.create_topic("t")
        assert (await appended(cluster, topic.topic_id)).first_offset == 0


async def test_second_store_under_one_name_is_refused(pair: InProcessCluster, tmp_path: Path) -> None:
    """While an enode lives, another store under its name gets no lease, and the first one's address stays."""
    first = await alive(pair, "enode-0")
    intruder = topic_pb2.Enode(name="enode-0", address="127.0.0.1:9", store_id="other")
    with pytest.raises(OrtooError) as caught, rpc_errors("name server"):
        await pair.name_service.RegisterEnode(namesrv_pb2.RegisterEnodeRequest(enode=intruder))
    assert not isinstance(caught.value, NotFound)
    assert (await alive(pair, "enode-0")).address == first.address
