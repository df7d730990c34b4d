"""The name servers' database: SQLite in memory, which survives its name servers, with the faults of a remote one."""

import asyncio
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import sqlalchemy as sa

from ortoo.common.process.randomness import Randomness
from ortoo.namesrv.catalog import tables
from ortoo.namesrv.catalog.catalog import Catalog
from ortoo.namesrv.catalog.database import Database
from ortoo.namesrv.catalog.schema import migrate_to_head
from ortoo.namesrv.catalog.stored_proposals import StoredProposals
from ortoo.namesrv.catalog.transaction import CatalogTransaction
from ortoo.testing.simulation.kernel.random_streams import happens

T = TypeVar("T")


class SimulatedDatabase:
    """One database. Each transaction is atomic in time, so a kill never interrupts one."""

    def __init__(self, chance: Randomness, *, shared: bool) -> None:
        """An empty one; `shared` if several name servers use it."""
        self.shared = shared
        self.away = False
        """Whether it can be reached."""
        self.lost_before = 0.0
        """The probability that a connection is lost before the transaction."""
        self.lost_after = 0.0
        """The probability that a connection is lost after the commit, so that the outcome is unknown."""
        self.refused = 0.0
        """The probability that a transaction is refused because of a concurrent one."""
        self._chance = chance
        self._engine = sa.create_engine(
            "sqlite://", poolclass=sa.pool.StaticPool, connect_args={"check_same_thread": False}
        )
        migrate_to_head(self._engine, chance.uuid_text())

    async def open(self, database_url: str, data_dir: Path, new_id: str) -> Catalog:
        """A name server's catalog; the directory already has its id. Errors: Unavailable."""
        catalog = SimulatedCatalog(self)
        await catalog.read_version()
        return catalog

    def backup(self) -> bytes:
        """A copy of its content."""
        return self._raw().serialize()

    def restore(self, backup: bytes) -> None:
        """Restore a copy, however old."""
        self._raw().deserialize(backup)

    def proposals(self) -> list[dict[str, object]]:
        """The stored proposals of a leader, one row for each enode."""
        with self._engine.begin() as connection:
            return [dict(row._mapping) for row in connection.execute(sa.select(tables.proposals))]

    def restore_proposals(self, before: list[dict[str, object]]) -> None:
        """Restore proposals, as in an old copy of the database."""
        with self._engine.begin() as connection:
            connection.execute(sa.delete(tables.proposals))
            if before:
                connection.execute(sa.insert(tables.proposals), before)

    def close(self) -> None:
        """Drop everything."""
        self._engine.dispose()

    @property
    def engine(self) -> sa.Engine:
        """The SQLAlchemy engine."""
        return self._engine

    def with_faults(self, work: Callable[[], T]) -> Callable[[], T]:
        """The same work, over a connection that may fail before and after it."""

        def run() -> T:
            self._fail_now(before=True)
            answer = work()
            self._fail_now(before=False)
            return answer

        return run

    def _fail_now(self, before: bool) -> None:
        """Raise a driver's error, if the connection fails. Errors: sqlalchemy.exc.OperationalError."""
        if self.away:
            raise _operational("could not connect to server: Connection refused")
        if happens(self._chance, self.lost_before if before else self.lost_after):
            raise _operational("server closed the connection unexpectedly")
        if before and happens(self._chance, self.refused):
            raise _operational("could not serialize access due to concurrent update")

    def _raw(self) -> sqlite3.Connection:
        connection = self._engine.raw_connection().driver_connection
        assert isinstance(connection, sqlite3.Connection)
        return connection


class _Link(Database):
    """A name server's connection to it. The loop's executor gives the work its time and its order."""

    def __init__(self, database: SimulatedDatabase, name: str) -> None:
        # The thread is only the name of a work queue: the simulated loop starts no thread.
        super().__init__(database.engine, name)
        self._database = database

    def submit(self, work: Callable[[], T]) -> "asyncio.Future[T]":
        return super().submit(self._database.with_faults(work))

    async def close(self) -> None:
        """Close nothing: the database is on another machine."""


class SimulatedCatalog(Catalog):
    """A name server's catalog there."""

    def __init__(self, database: SimulatedDatabase) -> None:
        """Use `SimulatedDatabase.open`."""
        super().__init__(_Link(database, "catalog"), StoredProposals(_Link(database, "proposals")))
        self.shared = database.shared

    async def _read_at_one_moment(self, read: Callable[[CatalogTransaction], T]) -> T:
        """No other transaction runs meanwhile."""
        return await self._database.submit_transaction(lambda connection: read(CatalogTransaction(connection)))


def _operational(reason: str) -> sa.exc.OperationalError:
    return sa.exc.OperationalError("", {}, sqlite3.OperationalError(reason))
