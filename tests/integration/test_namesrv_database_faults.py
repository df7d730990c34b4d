"""The name server's errors when its database fails; only damaged data are reported as data loss."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
import pytest_asyncio
import sqlalchemy as sa

from ortoo.common.directory.group import Group
from ortoo.common.errors import DataLoss, Unavailable
from ortoo.namesrv.catalog import tables
from ortoo.namesrv.catalog.catalog import Catalog
from ortoo.namesrv.catalog.transaction import CatalogTransaction
from ortoo.namesrv.decisions.replicas import Proposal, ReplicaId
from ortoo.verification.servers.postgres import Postgres, postgres
from tests.e2e.deaf_relay import deaf_relay

pytestmark = pytest.mark.asyncio(loop_scope="module")
Fault = Callable[[CatalogTransaction, int], None]
"""A fault in the nth run of a transaction."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def database() -> AsyncIterator[Postgres]:
    """One PostgreSQL for this file."""
    async with postgres() as server:
        yield server


@pytest_asyncio.fixture(loop_scope="module")
async def catalog(database: Postgres, tmp_path: Path) -> AsyncIterator[Catalog]:
    """A catalog over the database, without groups."""
    _sql(database, "drop schema public cascade; create schema public")
    opened = await Catalog.open(database.url, tmp_path, "d")
    yield opened
    await opened.close()


def _sql(database: Postgres, text: str) -> None:
    """Run a statement of another session."""
    writable = {"options": "-c default_transaction_read_only=off"}
    engine = sa.create_engine(database.url, isolation_level="AUTOCOMMIT", connect_args=writable)
    with engine.connect() as connection:
        connection.execute(sa.text(text))
    engine.dispose()


def _group(name: str) -> Group:
    return Group(name, 1, consume_enabled=True, slow_consumer_threshold_messages=1, created_at_ms=1)


async def _put(catalog: Catalog, name: str, fault: Fault = lambda *_: None) -> int:
    """Store a group; return the number of runs of the transaction."""
    runs = 0

    def decide(transaction: CatalogTransaction) -> tuple[int, bool]:
        nonlocal runs
        runs += 1
        fault(transaction, runs)
        transaction.put_group(_group(name), None)
        return runs, True

    return await catalog.run_transaction(decide)


async def _names(catalog: Catalog) -> set[str]:
    return {one.name for one in (await catalog.load_all()).groups}


def _pid(transaction: CatalogTransaction) -> int:
    return int(transaction._connection.execute(sa.text("select pg_backend_pid()")).scalar_one())


async def test_a_read_only_primary_is_unavailable(catalog: Catalog, database: Postgres) -> None:
    """No data are lost, so the error does not report a loss; once the database is writable they are stored."""
    _sql(database, "alter database postgres set default_transaction_read_only = on")
    try:
        catalog._engine.dispose()
        with pytest.raises(Unavailable, match="read-only: set database_url to the primary"):
            await _put(catalog, "a")
        await catalog.read_version()  # a successful read does not end the finding
        (found,) = catalog.findings()
        assert (found.name, "read-only" in found.observed) == ("database unavailable", True)
        assert "to the primary" in found.remedy
    finally:
        _sql(database, "alter database postgres set default_transaction_read_only = off")
    catalog._engine.dispose()
    assert await _put(catalog, "a") == 1
    assert await _names(catalog) == {"a"}
    await catalog.read_version()
    assert list(catalog.findings()) == []


async def test_a_connection_that_is_lost_before_the_commit_costs_a_second_run(
    catalog: Catalog, database: Postgres
) -> None:
    """The backend is ended during the transaction. Nothing was stored, so it runs again and is stored once."""

    def fault(transaction: CatalogTransaction, run: int) -> None:
        if run == 1:
            _sql(database, f"select pg_terminate_backend({_pid(transaction)})")

    assert await _put(catalog, "b", fault) == 2
    assert await _names(catalog) == {"b"}


async def test_a_connection_that_is_always_lost_is_unavailable_soon(catalog: Catalog, database: Postgres) -> None:
    """The number of retries is limited, and none of them stored anything."""
    with pytest.raises(Unavailable, match="database failed"):
        await _put(catalog, "c", lambda it, _: _sql(database, f"select pg_terminate_backend({_pid(it)})"))
    assert await _names(catalog) == set()


async def test_a_connection_that_is_lost_at_the_commit_leaves_the_outcome_unknown(
    catalog: Catalog, database: Postgres
) -> None:
    """It is unknown whether the commit arrived, so it is not repeated, and the client gets exactly that error."""
    pids: list[int] = []

    def at_commit(connection: sa.Connection) -> None:
        if pids:
            _sql(database, f"select pg_terminate_backend({pids.pop()})")

    sa.event.listen(catalog._engine, "commit", at_commit)
    runs: list[int] = []

    def fault(transaction: CatalogTransaction, run: int) -> None:
        runs.append(run)
        pids.append(_pid(transaction))

    with pytest.raises(Unavailable, match="the outcome is unknown"):
        await _put(catalog, "d", fault)
    assert runs == [1]


async def test_a_database_that_says_nothing_more_is_given_up_and_found_again(
    database: Postgres, tmp_path: Path
) -> None:
    """A frozen database does not time out its own statements, and would hold the threads permanently."""
    _sql(database, "drop schema public cascade; create schema public")
    async with deaf_relay(f"127.0.0.1:{database.port}") as relay, asyncio.timeout(60):
        port = relay.address.rpartition(":")[2]
        catalog = await Catalog.open(database.url.replace(f":{database.port}/", f":{port}/"), tmp_path, "d")
        stored, proposal = catalog.proposals, Proposal(1, ReplicaId(1, "disk"))
        assert await stored.load_all() == {}
        relay.deaf = True
        with pytest.raises(Unavailable, match="database failed"):
            await stored.load_all()
        relay.deaf = False
        assert await stored.load_all() == {}
        sa.event.listen(stored._database.engine, "commit", lambda _: setattr(relay, "deaf", True), once=True)
        with pytest.raises(Unavailable, match="the outcome is unknown"):
            await stored.compare_and_store("e", 0, proposal)
        relay.deaf = False
        assert await stored.load_all() == {"e": proposal}
        await catalog.close()


async def test_concurrent_changes_are_run_again(catalog: Catalog, database: Postgres) -> None:
    """A unique violation and a serialization failure come from concurrent changes: the decision is repeated."""

    def unique(transaction: CatalogTransaction, run: int) -> None:
        if run == 1:
            for _ in range(2):
                row = tables.row_of(tables.groups, _group("e"))
                transaction._connection.execute(sa.insert(tables.groups).values(row))

    assert await _put(catalog, "e", unique) == 2

    def serialization(transaction: CatalogTransaction, run: int) -> None:
        if run == 1:
            transaction._connection.execute(
                sa.text("do $$ begin raise exception 'could not serialize' using errcode = '40001'; end $$")
            )

    assert await _put(catalog, "f", serialization) == 2
    assert await _names(catalog) == {"e", "f"}


@pytest.mark.parametrize(("state", "error"), [("53100", Unavailable), ("42P01", Unavailable), ("XX001", DataLoss)])
async def test_only_damaged_data_are_called_damaged(state: str, error: type[Exception], catalog: Catalog) -> None:
    """A full disk or a missing table is no loss of data, and a damaged page is."""

    def fault(transaction: CatalogTransaction, run: int) -> None:
        transaction._connection.execute(
            sa.text(f"do $$ begin raise exception 'it fails' using errcode = '{state}'; end $$")
        )

    with pytest.raises(error, match="it fails"):
        await _put(catalog, "g", fault)
    assert await _names(catalog) == set()


async def test_sqlite_damage_is_data_loss_and_a_full_disk_is_not(tmp_path: Path) -> None:
    """For a file, a page limit is used as the full disk, and garbage as the damage."""
    catalog = await Catalog.open("", tmp_path, "d")

    def full(transaction: CatalogTransaction, run: int) -> None:
        transaction._connection.execute(sa.text("pragma max_page_count = 1"))
        for number in range(2_000):
            transaction.put_group(_group(f"filler {number}"), None)

    with pytest.raises(Unavailable, match="full"):
        await _put(catalog, "h", full)
    assert await _names(catalog) == set()
    assert await asyncio.wait_for(_put(catalog, "i"), 10) == 1
    await catalog.close()
    file = tmp_path / "namesrv.db"
    file.write_bytes(b"SQLite format 3\0" + b"\x5a" * (file.stat().st_size - 16))
    with pytest.raises(DataLoss, match="damaged"):
        await Catalog.open("", tmp_path, "d")
