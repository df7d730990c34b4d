"""Topics and groups are listed in pages, by every server, and completely."""

from itertools import chain
from pathlib import Path
from typing import Any

import grpc
import pytest

from ortoo.client import connect
from ortoo.client.admin import topics as admin_topics
from ortoo.v1 import namesrv_pb2 as pb
from ortoo.v1.admin_pb2_grpc import AdminServiceStub
from ortoo.verification.servers.cluster import open_cluster

NAMES = [f"t{number}" for number in range(7)]
GROUPS = [f"g{number}" for number in range(5)]


async def names_of(stub: Any, method: str, request: Any, field: str) -> list[list[str]]:
    """The names of all pages."""
    pages = []
    while True:
        answer = await getattr(stub, method)(request)
        pages.append([one.name for one in getattr(answer, field)])
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
