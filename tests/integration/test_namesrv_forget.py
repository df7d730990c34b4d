"""The name server forgets an enode: its topics, deleted topics, orders of producers, and its registered store."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from ortoo.common.errors import Conflict, NotFound
from ortoo.common.errors.status import rpc_errors
from ortoo.v1 import namesrv_pb2, topic_pb2
from ortoo.v1 import replica_admin_pb2 as admin_pb
from ortoo.v1 import replica_report_pb2 as report_pb
from ortoo.v1.namesrv_pb2_grpc import NameServiceStub
from tests.integration.name_server import name_server


@asynccontextmanager
async def two_enodes(folder: Path) -> AsyncIterator[NameServiceStub]:
    """A name server at which the enodes `e` and `f` have registered, and on both of them the topic `both`."""
    async with name_server("", folder) as stub:
        for name in ("e", "f"):
            await register(stub, name)
        await stub.CreateTopic(namesrv_pb2.CreateTopicRequest(name="both", read_queue_count=2))
        yield stub


async def register(stub: NameServiceStub, name: str) -> None:
    """Register an enode. Errors: those of the name server."""
    enode = topic_pb2.Enode(name=name, address=f"{name}:1", store_id=f"store-{name}")
    with rpc_errors("name server"):
        await stub.RegisterEnode(namesrv_pb2.RegisterEnodeRequest(enode=enode))


async def leave(stub: NameServiceStub, name: str = "e") -> None:
    """End the lease of an enode."""
    await stub.Unregister(namesrv_pb2.UnregisterRequest(enode=name))


async def forget(stub: NameServiceStub, *, lose: bool = False) -> admin_pb.ForgetEnodeResponse:
    """Forget the enode `e`. Errors: those of the name server."""
    with rpc_errors("name server"):
        return await stub.ForgetEnode(admin_pb.ForgetEnodeRequest(enode="e", lose=lose))


async def enodes_of(stub: NameServiceStub, topic: str) -> list[str]:
    """The enodes of a topic."""
    found = (await stub.GetTopic(namesrv_pb2.GetTopicRequest(name=topic))).topic
    assert {place.enode for place in found.publish_order.places} <= {place.enode for place in found.placements}
    return [place.enode for place in found.placements]


async def test_a_drained_enode_is_forgotten_without_a_loss(tmp_path: Path) -> None:
    """An enode whose queues producers do not use is forgotten once it is stopped; others need `lose`."""
    async with two_enodes(tmp_path) as stub:
        await leave(stub)
        with pytest.raises(Conflict, match="not drained: both"):
            await forget(stub)
        order = topic_pb2.PublishOrder(places=[topic_pb2.PublishPlace(enode="f", queue_count=2)])
        await stub.UpdateTopic(namesrv_pb2.UpdateTopicRequest(name="both", publish_order=order))
        assert list((await forget(stub)).reduced_topics) == ["both"]
        assert await enodes_of(stub, "both") == ["f"]
        assert (await forget(stub)).version == 0
        with pytest.raises(Conflict, match="ortoo enode accept-store e store-e"):
            await register(stub, "e")
    async with name_server("", tmp_path) as stub:
        with pytest.raises(Conflict, match="was forgotten by an operator"):
            await register(stub, "e")
        assert await enodes_of(stub, "both") == ["f"]
        await stub.AcceptStore(admin_pb.AcceptStoreRequest(enode="e", store_id="store-e"))
        await register(stub, "e")


async def test_an_enode_is_removed_from_orders_of_producers(tmp_path: Path) -> None:
    """The order keeps the other enodes; without any other it is the default order again."""
    async with two_enodes(tmp_path) as stub:
        for topic, places in (("both", ("e", "f")), ("mine", ("e",))):
            await stub.CreateTopic(namesrv_pb2.CreateTopicRequest(name=topic, read_queue_count=2))
            order = topic_pb2.PublishOrder(
                places=[topic_pb2.PublishPlace(enode=name, queue_count=1) for name in places]
            )
            await stub.UpdateTopic(namesrv_pb2.UpdateTopicRequest(name=topic, publish_order=order))
        await leave(stub)
        await forget(stub, lose=True)
        for topic in ("both", "mine"):
            assert await enodes_of(stub, topic) == ["f"]


async def test_deleted_topics_are_not_restored_on_a_forgotten_enode(tmp_path: Path) -> None:
    """A deleted topic that only the enode had is lost with it; another one comes back without the enode."""
    async with two_enodes(tmp_path) as stub:
        await stub.CreateTopic(namesrv_pb2.CreateTopicRequest(name="only", enodes=["e"]))
        for name in ("only", "both"):
            await stub.DeleteTopic(namesrv_pb2.DeleteTopicRequest(name=name))
        await leave(stub)
        with pytest.raises(Conflict, match="1 deleted topic that can be restored: only"):
            await forget(stub)
        assert list((await forget(stub, lose=True)).lost_deleted_topics) == ["only"]
        listed = (await stub.ListDeletedTopics(namesrv_pb2.ListDeletedTopicsRequest())).topics
        assert [[place.enode for place in one.topic.placements] for one in listed] == [["f"]]
        await stub.UndeleteTopic(namesrv_pb2.UndeleteTopicRequest(name="both"))
        assert await enodes_of(stub, "both") == ["f"]
        with pytest.raises(NotFound), rpc_errors("name server"):
            await stub.UndeleteTopic(namesrv_pb2.UndeleteTopicRequest(name="only"))


async def test_the_last_enode_of_a_topic_needs_another_one(tmp_path: Path) -> None:
    """A topic never is without queues: while no other enode is alive, nothing is forgotten."""
    async with two_enodes(tmp_path) as stub:
        await stub.CreateTopic(namesrv_pb2.CreateTopicRequest(name="only", enodes=["e"]))
        for name in ("e", "f"):
            await leave(stub, name)
        with pytest.raises(Conflict, match="no enode is alive"):
            await forget(stub, lose=True)
        assert await enodes_of(stub, "only") == ["e"]
        await register(stub, "f")
        assert list((await forget(stub, lose=True)).moved_topics) == ["only"]
        assert await enodes_of(stub, "only") == ["f"]


async def test_replicas_that_report_are_stopped_first(tmp_path: Path) -> None:
    """A replica without a leader has no lease, but it has messages: it is named."""
    async with two_enodes(tmp_path) as stub:
        await leave(stub)
        await forget(stub, lose=True)
        await stub.AcceptStore(admin_pb.AcceptStoreRequest(enode="e", store_id="the-set"))
        replica = report_pb.ReplicaId(number=2, disk="d")
        request = report_pb.ReportReplicaRequest(
            enode="e", set_id="the-set", replica=replica, incarnation=1, address="h:1", replica_address="h:2"
        )
        request.voters.append(replica)
        await stub.ReportReplica(request)
        with pytest.raises(Conflict, match="replicas 2 of enode 'e' report"):
            await forget(stub, lose=True)
