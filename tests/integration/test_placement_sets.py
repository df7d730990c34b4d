"""A directory with many topics on many enodes: old databases and backups, watchers of two versions, and its growth."""

import asyncio
import contextlib
import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from ortoo.common.cluster.route_watch import assemble_changes
from ortoo.common.errors import Invalid, Unsupported
from ortoo.common.errors.status import rpc_errors
from ortoo.common.records.sealed_batch import crc32c
from ortoo.namesrv.catalog import schema
from ortoo.namesrv.directory import watches
from ortoo.namesrv.offline.backup import restore
from ortoo.snode.cluster.wire import decode_update
from ortoo.v1 import namesrv_pb2 as pb
from ortoo.v1 import topic_pb2
from ortoo.v1.namesrv_pb2_grpc import NameServiceStub
from ortoo.verification.servers.postgres import postgres
from tests.integration.name_server import name_server

ENODES, TOPICS = 100, 3_000
BEFORE = "0014"


def fill(connection: sa.Connection, topics: int, enodes: int) -> None:
    """Fill a database of the schema before with topics, each on all enodes; the last one is deleted."""
    connection.execute(sa.text("create table alembic_version (version_num varchar(32) primary key)"))
    schema._migrate(connection, "", BEFORE)
    connection.execute(sa.text("insert into directory (id, schema_version, version) values (1, 1, 7)"))
    rows = [{"name": f"t{number}", "topic_id": number} for number in range(1, topics + 1)]
    columns = "(name, topic_id, version, permission, created_at_ms"
    connection.execute(sa.text(f"insert into topics {columns}) values (:name, :topic_id, 7, 1, 1)"), rows[:-1])
    deleted = f"insert into deleted_topics {columns}, deleted_at_ms, due_at_ms) values (:name, :topic_id, 7, 1, 1, 1, "
    connection.execute(sa.text(deleted + f"{1 << 50})"), rows[-1:])
    places = [{"topic_id": row["topic_id"], "enode": f"e{at}"} for row in rows for at in range(enodes)]
    connection.execute(sa.text("insert into placements values (:topic_id, :enode, 4, 3)"), places)


def database_of(folder: Path, topics: int, enodes: int) -> Path:
    """A database file of the schema before."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "namesrv.db"
    engine = sa.create_engine(f"sqlite:///{file}")
    with engine.begin() as connection:
        fill(connection, topics, enodes)
    engine.dispose()
    return file


async def first_change(stub: NameServiceStub, *, accepts: bool) -> pb.WatchRoutesResponse:
    """The snapshot for a watcher, with all its parts."""
    call = stub.WatchRoutes(pb.WatchRoutesRequest(accepts_placement_sets=accepts))
    with rpc_errors("name server"):
        return await anext(assemble_changes(call))


async def test_an_old_directory_that_was_full_takes_more_topics(tmp_path: Path) -> None:
    """Its placements become one set: in the database, in the snapshot, and for a restored topic."""
    file = database_of(tmp_path, TOPICS, ENODES)
    async with name_server("", tmp_path) as stub, asyncio.timeout(60):
        enode = topic_pb2.Enode(name="e0", address="h:1", store_id="s")
        await stub.RegisterEnode(pb.RegisterEnodeRequest(enode=enode))
        await stub.CreateTopic(pb.CreateTopicRequest(name="new"))
        restored = (await stub.UndeleteTopic(pb.UndeleteTopicRequest(name=f"t{TOPICS}"))).topic
        expected = {(f"e{at}", 4, 3) for at in range(ENODES)}
        for topic in (restored, (await stub.GetTopic(pb.GetTopicRequest(name="t1"))).topic):
            assert {(one.enode, one.read_queue_count, one.write_queue_count) for one in topic.placements} == expected
        snapshot = await first_change(stub, accepts=True)
        assert len(snapshot.topics) == TOPICS + 1
        assert len(snapshot.placement_sets) == 2
        assert snapshot.ByteSize() < 60 * TOPICS
    with contextlib.closing(sqlite3.connect(file)) as connection:
        assert connection.execute("select count(*) from placement_sets").fetchone() == (ENODES + 1,)


async def test_a_snapshot_grows_by_one_set_with_more_enodes(tmp_path: Path) -> None:
    """The bytes for the topics are the same beside four times as many enodes."""
    sizes = []
    for enodes in (25, 100):
        database_of(tmp_path / str(enodes), 200, enodes)
        async with name_server("", tmp_path / str(enodes)) as stub:
            snapshot = await first_change(stub, accepts=True)
            sets = sum(one.ByteSize() for one in snapshot.placement_sets)
            sizes.append((snapshot.ByteSize() - sets, sets))
    assert sizes[1][0] <= sizes[0][0] + 2  # the length of the set
    assert sizes[1][1] <= 4.5 * sizes[0][1]


async def test_watchers_of_both_versions_know_the_same_topics(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An earlier watcher gets its placements in each topic, and is refused when these are too large."""
    database_of(tmp_path, 20, 5)
    async with name_server("", tmp_path) as stub:
        new, old = await first_change(stub, accepts=True), await first_change(stub, accepts=False)
        assert not any(topic.placements for topic in new.topics)
        assert not old.placement_sets
        assert decode_update(new).topics == decode_update(old).topics
        monkeypatch.setattr(watches, "DIRECTORY_BYTES_MAX", 20 * 5 * 20)
        with pytest.raises(Unsupported, match="upgrade this process"):
            await first_change(stub, accepts=False)
        assert (await first_change(stub, accepts=True)).topics == new.topics


async def test_an_old_backup_is_restored(tmp_path: Path) -> None:
    """A backup of the schema before has a row for each topic and enode."""
    file, backup = database_of(tmp_path / "old", 5, 3), tmp_path / "backup"
    with contextlib.closing(sqlite3.connect(file)) as connection:
        connection.row_factory = sqlite3.Row

        def rows() -> Iterator[dict[str, object]]:
            for table in ("directory", "topics", "deleted_topics", "placements"):
                for row in connection.execute(f"select * from {table}"):
                    yield {"table": table, "row": dict(row)}

        lines = [{"format": "ortoo-directory", "version": 1, "schema": BEFORE}, *rows()]
    body = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
    end = json.dumps({"rows": len(lines) - 1, "crc32c": f"{crc32c(body):08x}"}).encode()
    backup.write_bytes(body + end + b"\n")
    (tmp_path / "new").mkdir()
    restore("", tmp_path / "new", backup, "id", 1)
    async with name_server("", tmp_path / "new") as stub:
        restored = (await stub.UndeleteTopic(pb.UndeleteTopicRequest(name="t5"))).topic
        found = [*(await stub.ListTopics(pb.ListTopicsRequest())).topics]
    assert [topic.name for topic in found] == [f"t{number}" for number in range(1, 6)]
    assert {tuple(one.enode for one in topic.placements) for topic in (*found, restored)} == {("e0", "e1", "e2")}


async def test_a_running_name_server_of_the_version_before_can_read(tmp_path: Path) -> None:
    """With PostgreSQL, its statement about placements returns the same rows after the migration.

    It can neither delete nor restore a topic, because the topic would lose its placements.
    """
    async with postgres() as server:
        engine = sa.create_engine(server.url)
        statement = sa.text("select topic_id, enode, read_queue_count, write_queue_count from placements order by 1, 2")

        def read() -> list[tuple[object, ...]]:
            with engine.connect() as connection:
                return [tuple(row) for row in connection.execute(statement)]

        def prepare() -> None:
            with engine.begin() as connection:
                fill(connection, 4, 3)

        def move_topics() -> None:
            columns = "name, topic_id, version, permission, created_at_ms"
            for table, more in (("deleted_topics", ", deleted_at_ms, due_at_ms"), ("topics", "")):
                insertion = f"insert into {table} ({columns}{more}) values ('n', 99, 8, 1, 1{more and ', 1, 1'})"
                with pytest.raises(sa.exc.IntegrityError, match="placement_set_id"), engine.begin() as connection:
                    connection.execute(sa.text(insertion))

        await asyncio.to_thread(prepare)
        before = await asyncio.to_thread(read)
        async with name_server(server.url, tmp_path):
            assert await asyncio.to_thread(read) == before
            await asyncio.to_thread(move_topics)
        engine.dispose()


async def test_sets_that_no_topic_names_are_deleted_at_a_start(tmp_path: Path) -> None:
    """Old sets do not stay forever."""
    file = database_of(tmp_path, 3, 2)
    async with name_server("", tmp_path) as stub:
        enode = topic_pb2.Enode(name="e9", address="h:1", store_id="s")
        await stub.RegisterEnode(pb.RegisterEnodeRequest(enode=enode))
        await stub.UndeleteTopic(pb.UndeleteTopicRequest(name="t3"))
        for name in ("t1", "t2", "t3"):
            await stub.UpdateTopic(pb.UpdateTopicRequest(name=name, add_enodes=["e9"]))
    with contextlib.closing(sqlite3.connect(file)) as connection:
        count = "select count(distinct set_id) from placement_sets"
        assert connection.execute(count).fetchone() == (2,)
        async with name_server("", tmp_path):
            pass
        assert connection.execute(count).fetchone() == (1,)


async def test_a_list_that_is_too_large_names_its_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages end before their message is too large, and together they have every topic."""
    database_of(tmp_path, 40, 50)
    monkeypatch.setattr("ortoo.common.grpc.limits.list_pages.LIST_BYTES_MAX", 4_000)
    async with name_server("", tmp_path) as stub:
        with pytest.raises(Invalid, match="next_after") as refused, rpc_errors("name server"):
            await stub.ListTopics(pb.ListTopicsRequest())
        assert refused.value.field == "limit"
        names, request = [], pb.ListTopicsRequest(limit=100)
        while True:
            answer = await stub.ListTopics(request)
            assert answer.ByteSize() < 4_100
            names += [topic.name for topic in answer.topics]
            request.after = answer.next_after
            if not request.after:
                break
        assert names == sorted(f"t{number}" for number in range(1, 40))
        await stub.PutGroup(pb.PutGroupRequest(group=topic_pb2.Group(name="g")))
        await stub.PutGroup(pb.PutGroupRequest(group=topic_pb2.Group(name="h")))
        for name, found in (("g", ["g"]), ("none", []), ("", ["g", "h"])):
            assert [one.name for one in (await stub.ListGroups(pb.ListGroupsRequest(name=name))).groups] == found
