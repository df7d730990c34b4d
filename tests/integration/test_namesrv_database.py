"""The name server's database: migrations, PostgreSQL, several name servers on one database, exclusive rights."""

import asyncio
import contextlib
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory

from ortoo.common.errors import Conflict, Fenced, Invalid, NotFound, Unavailable
from ortoo.common.errors.status import rpc_errors
from ortoo.common.process.clock import SystemClock
from ortoo.namesrv.catalog import schema, tables
from ortoo.v1 import named_lease_pb2 as lease_pb
from ortoo.v1 import namesrv_pb2 as pb
from ortoo.v1 import topic_pb2
from ortoo.v1.namesrv_pb2_grpc import NameServiceStub
from ortoo.verification.servers.postgres import Postgres, postgres
from tests.integration.name_server import name_server

pytestmark = pytest.mark.asyncio(loop_scope="module")
MIGRATIONS = Path(schema.__file__).parents[1] / "migrations"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def database() -> AsyncIterator[Postgres]:
    """One PostgreSQL for this file."""
    async with postgres() as server:
        yield server


async def register(*stubs: NameServiceStub) -> None:
    """Register one enode at each of them."""
    enode = topic_pb2.Enode(name="e", address="h:1", store_id="s")
    for stub in stubs:
        await stub.RegisterEnode(pb.RegisterEnodeRequest(enode=enode))


async def until_known(stub: NameServiceStub, name: str) -> topic_pb2.Topic:
    """Wait until a name server has a topic."""
    async with asyncio.timeout(60):
        while True:
            try:
                with rpc_errors("name server"):
                    return (await stub.GetTopic(pb.GetTopicRequest(name=name))).topic
            except NotFound:
                await SystemClock().sleep(0.02)


def old_database(folder: Path) -> Path:
    """A database as it was before migrations existed, with a topic and a group."""
    file = folder / "namesrv.db"
    with contextlib.closing(sqlite3.connect(file)) as connection:
        connection.executescript(
            """
            CREATE TABLE directory (id INTEGER NOT NULL, schema_version INTEGER NOT NULL, version BIGINT NOT NULL,
                PRIMARY KEY (id));
            CREATE TABLE topics (name VARCHAR(127) NOT NULL, topic_id BIGINT NOT NULL, version BIGINT NOT NULL,
                permission INTEGER NOT NULL, created_at_ms BIGINT NOT NULL, PRIMARY KEY (name), UNIQUE (topic_id));
            CREATE TABLE placements (topic_id BIGINT NOT NULL, enode VARCHAR(63) NOT NULL,
                read_queue_count INTEGER NOT NULL, write_queue_count INTEGER NOT NULL, PRIMARY KEY (topic_id, enode));
            CREATE TABLE groups (name VARCHAR(120) NOT NULL, version BIGINT NOT NULL, consume_enabled BOOLEAN NOT NULL,
                slow_consumer_threshold_messages BIGINT NOT NULL, slow_consumer_grace_ms BIGINT NOT NULL,
                created_at_ms BIGINT NOT NULL, PRIMARY KEY (name));
            INSERT INTO directory VALUES (1, 1, 7);
            INSERT INTO topics VALUES ('old', 42, 7, 3, 1);
            INSERT INTO placements VALUES (42, 'e', 4, 4);
            """
        )
    return file


async def test_newest_migration_is_what_the_code_knows() -> None:
    """The last script has the revision that new databases get."""
    assert ScriptDirectory(str(MIGRATIONS)).get_heads() == [schema.HEAD]


async def test_old_database_is_migrated_and_keeps_its_topics(tmp_path: Path) -> None:
    """A database from before migrations gets every change; its contents and its version are kept."""
    file = old_database(tmp_path)
    with contextlib.closing(sqlite3.connect(file)) as old, old:
        old.execute("INSERT INTO topics VALUES ('%RETRY%ns%old', 43, 7, 1, 1)")
    async with name_server("", tmp_path) as stub:
        found = (await stub.GetTopic(pb.GetTopicRequest(name="old"))).topic
        assert (found.topic_id, found.HasField("owner_group"), found.owner_group) == (42, True, "")
        retries = (await stub.GetTopic(pb.GetTopicRequest(name="%RETRY%ns%old"))).topic
        assert (retries.owner_group, retries.owner_kind) == ("ns%old", topic_pb2.OWNED_TOPIC_KIND_RETRY)
        right = await stub.AcquireNamedLease(lease_pb.AcquireNamedLeaseRequest(resource="r", owner="o", lease_ms=1000))
        assert right.epoch == 1
    with sa.create_engine(f"sqlite:///{file}").connect() as connection:
        assert connection.execute(sa.text("select version_num from alembic_version")).scalar_one() == schema.HEAD


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
async def test_migrated_and_new_databases_are_alike(kind: str, tmp_path: Path, database: Postgres) -> None:
    """All migrations in sequence give the tables of a new database, on both databases."""
    url = database.url if kind == "postgresql" else f"sqlite:///{tmp_path / 'a.db'}"
    engine = sa.create_engine(url)

    def migrate() -> list[Any]:
        with engine.begin() as connection:
            tables.metadata.drop_all(connection)
            connection.execute(sa.text("drop table if exists alembic_version"))
            connection.execute(sa.text("create table alembic_version (version_num varchar(32) primary key)"))
            schema._migrate(connection, "")
            return list(compare_metadata(MigrationContext.configure(connection), tables.metadata))

    assert await asyncio.to_thread(migrate) == []
    engine.dispose()


async def test_two_name_servers_share_one_directory(tmp_path: Path, database: Postgres) -> None:
    """Changes stored through one are served by the other within a moment, also to watchers; versions never fork."""
    async with (
        name_server(database.url, tmp_path / "a") as a,
        name_server(database.url, tmp_path / "b") as b,
        asyncio.timeout(60),
    ):
        await register(a, b)
        await asyncio.gather(*(s.CreateTopic(pb.CreateTopicRequest(name=f"t{n}")) for n, s in enumerate([a, b] * 10)))
        for stub in (a, b):
            assert len({(await until_known(stub, f"t{n}")).version for n in range(20)}) == 20
        watch = b.WatchRoutes(pb.WatchRoutesRequest())
        snapshot = await watch.read()
        assert isinstance(snapshot, pb.WatchRoutesResponse)
        assert len(snapshot.topics) == 20
        await a.DeleteTopic(pb.DeleteTopicRequest(name="t0"))
        news = await watch.read()
        assert isinstance(news, pb.WatchRoutesResponse)
        assert list(news.deleted_topics) == ["t0"]
        await a.PutGroup(pb.PutGroupRequest(group=topic_pb2.Group(name="g", consume_enabled=True)))
        news = await watch.read()
        assert isinstance(news, pb.WatchRoutesResponse)
        assert [group.name for group in news.groups] == ["g"]
        watch.cancel()


async def test_database_away_is_told_and_forgotten(tmp_path: Path, database: Postgres) -> None:
    """While PostgreSQL is down topics are served and changes are refused with the reason; then they work again."""
    async with name_server(database.url, tmp_path) as stub, asyncio.timeout(60):
        await register(stub)
        await stub.CreateTopic(pb.CreateTopicRequest(name="before"))
        await database.stop()
        assert (await stub.GetTopic(pb.GetTopicRequest(name="before"))).topic.name == "before"
        with pytest.raises(Unavailable, match="database failed"), rpc_errors("name server"):
            await stub.CreateTopic(pb.CreateTopicRequest(name="during"))
        await register(stub)
        await database.start()
        await stub.CreateTopic(pb.CreateTopicRequest(name="after"))


async def test_name_server_waits_for_its_database(tmp_path: Path, database: Postgres) -> None:
    """A name server started before PostgreSQL becomes ready when the database is up."""
    await database.stop()
    opening = name_server(database.url, tmp_path)
    starting = asyncio.ensure_future(opening.__aenter__())  # noqa: TID251  # entered beside us
    await SystemClock().sleep(0.5)
    assert not starting.done()
    await database.start()
    async with asyncio.timeout(60):
        stub = await starting
    await register(stub)
    await opening.__aexit__(None, None, None)


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
async def test_right_has_one_owner_and_epochs_grow(kind: str, tmp_path: Path, database: Postgres) -> None:
    """Renewing keeps the epoch; a new owner gets a larger one, after the old lease ended. Old owners are fenced."""
    resource = str(tmp_path)
    async with name_server(database.url if kind == "postgresql" else "", tmp_path) as stub:

        async def acquire(owner: str, lease_ms: int = 60_000) -> int:
            with rpc_errors("name server"):
                request = lease_pb.AcquireNamedLeaseRequest(resource=resource, owner=owner, lease_ms=lease_ms)
                return (await stub.AcquireNamedLease(request)).epoch

        async def release(owner: str, epoch: int) -> None:
            with rpc_errors("name server"):
                await stub.ReleaseNamedLease(
                    lease_pb.ReleaseNamedLeaseRequest(resource=resource, owner=owner, epoch=epoch)
                )

        assert [await acquire("a"), await acquire("a")] == [1, 1]
        with pytest.raises(Conflict, match="belongs to a in epoch 1") as refused:
            await acquire("b")
        assert 0 < refused.value.retry_after_ms <= 60_000
        await release("a", 1)
        assert await acquire("b") == 2
        with pytest.raises(Fenced, match="belongs to b in epoch 2"):
            await release("a", 1)
        assert await acquire("b", 200) == 2
        await SystemClock().sleep(0.25)
        assert await acquire("a") == 3
        with pytest.raises(Invalid, match="owner"):
            await acquire("")
        with pytest.raises(Invalid, match="lease_ms"):
            await acquire("a", 1)


async def test_right_is_granted_once_by_two_name_servers(tmp_path: Path, database: Postgres) -> None:
    """Of twenty simultaneous requests at two name servers for a right without an owner, one gets it."""
    async with name_server(database.url, tmp_path / "a") as a, name_server(database.url, tmp_path / "b") as b:

        async def acquire(stub: NameServiceStub, owner: str) -> int:
            try:
                with rpc_errors("name server"):
                    request = lease_pb.AcquireNamedLeaseRequest(resource="new", owner=owner, lease_ms=60_000)
                    return (await stub.AcquireNamedLease(request)).epoch
            except Conflict:
                return 0

        epochs = await asyncio.gather(*(acquire(stub, f"owner-{n}") for n, stub in enumerate([a, b] * 10)))
        assert sorted(epochs) == [0] * 19 + [1]


async def test_a_directory_keeps_its_id_whoever_serves_it(tmp_path: Path, database: Postgres) -> None:
    """Two name servers that open an empty database at once return the same id, and so does a later one."""
    both = [name_server(database.url, tmp_path) for _ in range(2)]
    async with both[0] as a, both[1] as b:
        await register(a, b)
        ids = [(await anext(aiter(one.WatchRoutes(pb.WatchRoutesRequest())))).directory_id for one in (a, b)]
    async with name_server(database.url, tmp_path) as later:
        ids.append((await anext(aiter(later.WatchRoutes(pb.WatchRoutesRequest())))).directory_id)
    assert len(set(ids)) == 1
    assert ids[0]


async def test_what_a_newer_name_server_keeps_stays(tmp_path: Path) -> None:
    """Unknown columns and enum numbers survive changes; such a number is shown as unspecified."""
    file = tmp_path / "namesrv.db"
    async with name_server("", tmp_path) as stub:
        await register(stub)
        await stub.CreateTopic(pb.CreateTopicRequest(name="t"))
        await stub.PutGroup(pb.PutGroupRequest(group=topic_pb2.Group(name="g", consume_enabled=True)))
        await stub.PutUser(pb.PutUserRequest(user=pb.User(access_key="u", enabled=True), secret_key="secret"))
    with contextlib.closing(sqlite3.connect(file)) as connection:
        for table in ("topics", "groups", "users"):
            connection.execute(f"alter table {table} add column later integer not null default 0")
            connection.execute(f"update {table} set later = 7")
        connection.execute("update topics set permission = 98, message_type = 99")
        connection.commit()
    async with name_server("", tmp_path) as stub:
        await register(stub)
        assert (await stub.GetTopic(pb.GetTopicRequest(name="t"))).topic.permission == topic_pb2.PERMISSION_UNSPECIFIED
        changed = await stub.UpdateTopic(pb.UpdateTopicRequest(name="t", read_queue_count=9, write_queue_count=9))
        assert changed.topic.placements[0].read_queue_count == 9
        await stub.PutGroup(pb.PutGroupRequest(group=topic_pb2.Group(name="g", consume_enabled=False)))
        await stub.PutUser(pb.PutUserRequest(user=pb.User(access_key="u", enabled=False)))
    with contextlib.closing(sqlite3.connect(file)) as connection:
        for table in ("topics", "groups", "users"):
            assert connection.execute(f"select later from {table}").fetchall() == [(7,)]
        assert connection.execute("select permission, message_type from topics").fetchall() == [(98, 99)]
        assert connection.execute("select consume_enabled from groups").fetchall() == [(0,)]
