"""The stored parents of lite topics: old databases and backups, requests, lists, and watches of two versions."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from ortoo.common.cluster.route_watch import assemble_changes
from ortoo.common.errors import Invalid, NotFound, Overloaded, Unsupported
from ortoo.common.errors.status import rpc_errors
from ortoo.common.records.sealed_batch import crc32c
from ortoo.namesrv.decisions import topics
from ortoo.namesrv.directory import watches
from ortoo.namesrv.offline.backup import restore
from ortoo.v1 import namesrv_pb2 as pb
from ortoo.v1 import topic_pb2
from ortoo.v1.namesrv_pb2_grpc import NameServiceStub
from tests.integration.name_server import name_server
from tests.integration.test_placement_sets import database_of

LITE = topic_pb2.MESSAGE_TYPE_LITE


async def register(stub: NameServiceStub, *names: str) -> None:
    """Register enodes."""
    for name in names:
        enode = topic_pb2.Enode(name=name, address="h:1", store_id=f"store of {name}")
        await stub.RegisterEnode(pb.RegisterEnodeRequest(enode=enode))


async def create(stub: NameServiceStub, name: str, **fields: object) -> topic_pb2.Topic:
    """Create a topic; errors are those of Ortoo."""
    with rpc_errors("name server"):
        return (await stub.CreateTopic(pb.CreateTopicRequest(name=name, **fields))).topic  # type: ignore[arg-type]


async def listed(stub: NameServiceStub, parent: str, limit: int = 0) -> list[str]:
    """The lite topics of a parent, read in pages."""
    found, after = [], ""
    while True:
        page = await stub.ListTopics(pb.ListTopicsRequest(parent=parent, after=after, limit=limit))
        found += [topic.name for topic in page.topics]
        if not (after := page.next_after):
            return found


async def watched(stub: NameServiceStub, **fields: object) -> list[str]:
    """The topics in the snapshot of a watch."""
    request = pb.WatchRoutesRequest(accepts_placement_sets=True, **fields)  # type: ignore[arg-type]
    with rpc_errors("name server"):
        return [topic.name for topic in (await anext(assemble_changes(stub.WatchRoutes(request)))).topics]


async def test_an_older_database_gets_the_parents(tmp_path: Path) -> None:
    """They are read from the names, also those of deleted topics and of rows that an earlier version writes later."""
    file = database_of(tmp_path, 3, 1)
    with closing(sqlite3.connect(file)) as connection, connection:
        for number, table in ((1, "topics"), (3, "deleted_topics")):
            connection.execute(f"update {table} set name = '%LMQ%|a|vip|l{number}' where topic_id = {number}")
    async with name_server("", tmp_path) as stub:
        await register(stub, "e0")
        restored = await stub.UndeleteTopic(pb.UndeleteTopicRequest(name="%LMQ%|a|vip|l3"))
        assert restored.topic.parent == "a|vip"
        assert await listed(stub, "a|vip") == ["%LMQ%|a|vip|l1", "%LMQ%|a|vip|l3"]
        ordinary = (await stub.GetTopic(pb.GetTopicRequest(name="t2"))).topic
        assert (ordinary.HasField("parent"), ordinary.parent) == (True, "")
    with closing(sqlite3.connect(file)) as connection, connection:
        columns = "name, topic_id, version, permission, created_at_ms, placement_set_id"
        connection.execute(
            f"insert into topics ({columns}) select '%LMQ%|a|vip|l9', 9, 7, 1, 1, placement_set_id from topics limit 1"
        )
    async with name_server("", tmp_path) as stub:
        assert "%LMQ%|a|vip|l9" in await listed(stub, "a|vip")


async def test_an_older_backup_gets_the_parents(tmp_path: Path) -> None:
    """Its rows have no column for the parent."""
    row = {"name": "%LMQ%|p|a", "topic_id": 5, "version": 3, "permission": 1, "created_at_ms": 1, "placement_set_id": 0}
    directory = {"id": 1, "schema_version": 1, "version": 3, "directory_id": "d"}
    lines: list[object] = [{"format": "ortoo-directory", "version": 1, "schema": "0015"}]
    lines += [{"table": "directory", "row": directory}, {"table": "topics", "row": row}]
    body = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
    last = {"rows": len(lines) - 1, "crc32c": f"{crc32c(body):08x}"}
    (tmp_path / "backup").write_bytes(body + json.dumps(last).encode() + b"\n")
    restore("", tmp_path / "new", tmp_path / "backup", "x", 1)
    async with name_server("", tmp_path / "new") as stub:
        assert (await stub.GetTopic(pb.GetTopicRequest(name="%LMQ%|p|a"))).topic.parent == "p"


async def test_the_parent_of_a_new_topic_is_checked(tmp_path: Path) -> None:
    """It exists, has lite topics, and is the parent in the name. A name that only looks like one has no parent."""
    async with name_server("", tmp_path) as stub:
        await register(stub, "e0")
        await create(stub, "p", message_type=LITE)
        await create(stub, "a|vip", message_type=LITE)
        await create(stub, "a")
        assert (await create(stub, "%LMQ%|p|l", parent="p")).parent == "p"
        assert (await create(stub, "%LMQ%|a|vip|l", parent="a|vip")).parent == "a|vip"
        assert (await create(stub, "%LMQ%|p|earlier")).parent == "p"  # a snode of an earlier version
        assert (await create(stub, "%LMQ%|a|l")).parent == ""
        for name, parent, error in (
            ("%LMQ%|q|l", "q", NotFound),
            ("%LMQ%|a|m", "a", Invalid),
            ("%LMQ%|p|m", "a|vip", Invalid),
            ("plain", "p", Invalid),
        ):
            with pytest.raises(error) as refused:
                await create(stub, name, parent=parent)
            assert refused.value.field == "parent", name


async def test_lite_topics_are_counted_by_parent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A deleted one makes space for another. They do not count for the limit of other topics."""
    monkeypatch.setattr(topics, "LITE_TOPICS_OF_PARENT_MAX", 2)
    monkeypatch.setattr(topics, "LITE_TOPICS_MAX", 3)
    monkeypatch.setattr(topics, "TOPICS_MAX", 2)
    async with name_server("", tmp_path) as stub:
        await register(stub, "e0")
        for parent in "pq":
            await create(stub, parent, message_type=LITE)
        for name in "ab":
            await create(stub, f"%LMQ%|p|{name}", parent="p")
        with pytest.raises(Overloaded, match="topic p has 2 lite topics") as refused:
            await create(stub, "%LMQ%|p|c", parent="p")
        assert refused.value.field == "parent"
        await create(stub, "%LMQ%|q|a", parent="q")
        with pytest.raises(Overloaded, match="3 lite topics are the maximum"):
            await create(stub, "%LMQ%|q|b", parent="q")
        await stub.DeleteTopic(pb.DeleteTopicRequest(name="%LMQ%|p|a"))
        await create(stub, "%LMQ%|p|c", parent="p")
        with pytest.raises(Overloaded, match="2 topics are the maximum"):
            await create(stub, "plain")


async def test_topics_are_found_by_name_id_and_parent(tmp_path: Path) -> None:
    """Missing ones are left out; lists have pages, and no lite topics of a parent with a similar name."""
    async with name_server("", tmp_path) as stub:
        await register(stub, "e0")
        for parent in ("a", "a|b"):
            await create(stub, parent, message_type=LITE)
            for number in range(3):
                await create(stub, f"%LMQ%|{parent}|l{number}", parent=parent)
        one = (await stub.GetTopic(pb.GetTopicRequest(name="%LMQ%|a|l1"))).topic
        request = topic_pb2.GetTopicsRequest(names=["a", "none", "%LMQ%|a|l0"], topic_ids=[one.topic_id, 1])
        answer = await stub.GetTopics(request)
        assert [topic.name for topic in answer.topics] == ["a", "%LMQ%|a|l0", "%LMQ%|a|l1"]
        assert answer.version == max(topic.version for topic in (await stub.ListTopics(pb.ListTopicsRequest())).topics)
        with pytest.raises(Invalid, match="request at most 1000"), rpc_errors("name server"):
            await stub.GetTopics(topic_pb2.GetTopicsRequest(names=[f"t{number}" for number in range(1_001)]))
        for limit in (0, 1, 2, 100):
            assert await listed(stub, "a", limit) == [f"%LMQ%|a|l{number}" for number in range(3)]
            assert await listed(stub, "a|b", limit) == [f"%LMQ%|a|b|l{number}" for number in range(3)]
            assert await listed(stub, "none", limit) == []


async def test_a_watch_selects_lite_topics(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A watcher of an earlier version gets all, and is refused when they are too large."""
    async with name_server("", tmp_path) as stub:
        await register(stub, "e0", "e1")
        await create(stub, "p", message_type=LITE)
        for number in range(4):
            await create(stub, f"%LMQ%|p|l{number}", parent="p", enodes=[f"e{number % 2}"])
        assert await watched(stub, lite_topics=topic_pb2.WATCHED_LITE_TOPICS_NONE) == ["p"]
        here = await watched(stub, lite_topics=topic_pb2.WATCHED_LITE_TOPICS_ON_ENODE, enode="e1")
        assert here == ["p", "%LMQ%|p|l1", "%LMQ%|p|l3"]
        assert len(await watched(stub)) == 5
        with pytest.raises(Invalid) as refused:
            await watched(stub, lite_topics=topic_pb2.WATCHED_LITE_TOPICS_ON_ENODE)
        assert refused.value.field == "enode"
        monkeypatch.setattr(watches, "DIRECTORY_BYTES_MAX", 300)
        with pytest.raises(Unsupported, match="upgrade this process"):
            await watched(stub)
        assert await watched(stub, lite_topics=topic_pb2.WATCHED_LITE_TOPICS_NONE) == ["p"]
