"""Topics and groups are listed in pages, by every server, and completely."""

from itertools import chain
from pathlib import Path
from typing import Any

import grpc
import pytest

from ortoo.client import connect
from ortoo.client.admin import topics as admin_topics
from ortoo.v1 import group_deletion_pb2 as deletion_pb
from ortoo.v1 import namesrv_pb2 as pb
from ortoo.v1 import orphaned_topics_pb2 as orphaned_pb
from ortoo.v1.admin_pb2_grpc import AdminServiceStub
from ortoo.v1.topic_pb2 import Enode, StoredTopic
from ortoo.verification.servers.cluster import open_cluster

NAMES = [f"t{number}" for number in range(7)]
GROUPS = [f"g{number}" for number in range(5)]


def name_of(row: Any) -> str:
    """The name of a topic or group, also of a deleted one."""
    match row:
        case pb.DeletedTopic():
            return row.topic.name
        case deletion_pb.DeletedGroup():
            return row.group.name
    return str(row.name)


async def names_of(stub: Any, method: str, request: Any, field: str) -> list[list[str]]:
    """The names of all pages."""
    pages = []
    while True:
        answer = await getattr(stub, method)(request)
        pages.append([name_of(one) for one in getattr(answer, field)])
        request.after = answer.next_after
        if not request.after:
            return pages


async def test_lists_are_complete_in_pages_and_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Snode and name server list the same names in pages of any size; a request without a limit gets all."""
    async with open_cluster(tmp_path) as cluster, connect(cluster.address) as mq:
        for name in NAMES:
            await mq.admin.create_topic(name)
        for name in GROUPS:
            await mq.admin.put_group(name)
        async with grpc.aio.insecure_channel(cluster.address) as channel:
            for stub in (AdminServiceStub(channel), cluster.name_service):
                for limit, sizes in ((0, [7]), (3, [3, 3, 1]), (7, [7]), (100, [7])):
                    pages = await names_of(stub, "ListTopics", pb.ListTopicsRequest(limit=limit), "topics")
                    assert ([len(page) for page in pages], list(chain(*pages))) == (sizes, NAMES)
                groups = await names_of(stub, "ListGroups", pb.ListGroupsRequest(limit=2), "groups")
                assert groups == [GROUPS[:2], GROUPS[2:4], GROUPS[4:]]
                for name, found in (("g3", [["g3"]]), ("absent", [[]])):  # one group does not cost the list of all
                    assert await names_of(stub, "ListGroups", pb.ListGroupsRequest(name=name), "groups") == found
        assert (await mq.admin.describe_group("g3")).name == "g3"
        monkeypatch.setattr(admin_topics, "LISTED_AT_ONCE", 2)
        assert [one.name for one in await mq.admin.list_topics()] == NAMES
        await mq.admin.delete_topic("t3", at_once=True)
        assert [one.name for one in await mq.admin.list_topics()] == [name for name in NAMES if name != "t3"]
        assert [one.name for one in await mq.admin.list_groups()] == GROUPS


async def test_deleted_and_orphaned_ones_are_listed_in_pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The order is that of the whole list, the last deleted first; also those deleted in the same millisecond."""
    async with open_cluster(tmp_path) as cluster, connect(cluster.address) as mq:
        for name in NAMES:
            await mq.admin.create_topic(name)
            await mq.admin.delete_topic(name)
        for name in GROUPS:
            await mq.admin.put_group(name)
            await mq.admin.delete_group(name)
        name_service = cluster.name_service
        held = [StoredTopic(topic_id=1 + at, name=f"o{at // 2}", queue_count=1) for at in range(5)]
        known = await name_service.RegisterEnode(
            pb.RegisterEnodeRequest(enode=Enode(name="e", address="h:1", store_id="s"))
        )
        await name_service.RegisterEnode(
            pb.RegisterEnodeRequest(
                enode=Enode(name="e", address="h:1", store_id="s"), directory_id=known.directory_id, unknown_topics=held
            )
        )
        offered = ["o0", "o0", "o1", "o1", "o2"]
        async with grpc.aio.insecure_channel(cluster.address) as channel:
            for stub in (AdminServiceStub(channel), name_service):
                for method, request, field, sizes in (
                    ("ListDeletedTopics", pb.ListDeletedTopicsRequest, "topics", [3, 3, 1]),
                    ("ListDeletedGroups", deletion_pb.ListDeletedGroupsRequest, "groups", [3, 2]),
                    ("ListOrphanedTopics", orphaned_pb.ListOrphanedTopicsRequest, "topics", [3, 2]),
                ):
                    [whole] = await names_of(stub, method, request(), field)
                    pages = await names_of(stub, method, request(limit=3), field)
                    assert ([len(page) for page in pages], list(chain(*pages))) == (sizes, whole)
                [whole] = await names_of(stub, "ListOrphanedTopics", orphaned_pb.ListOrphanedTopicsRequest(), "topics")
                assert whole == offered
        monkeypatch.setattr(admin_topics, "LISTED_AT_ONCE", 2)
        deleted = await mq.admin.list_deleted_topics()
        assert sorted(one.topic.name for one in deleted) == NAMES
        assert [one.deleted_at_ms for one in deleted] == sorted((one.deleted_at_ms for one in deleted), reverse=True)
        assert [one.name for one in await mq.admin.list_orphaned_topics()] == offered
        await mq.admin.undelete_topic("t3")
        assert "t3" not in [one.topic.name for one in await mq.admin.list_deleted_topics()]
        monkeypatch.setattr("ortoo.client.admin.admin.LISTED_AT_ONCE", 2)
        assert sorted(one.group.name for one in await mq.admin.list_deleted_groups()) == GROUPS
