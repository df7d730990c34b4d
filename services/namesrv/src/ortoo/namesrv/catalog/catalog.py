"""The stored directory: topics and groups in a database, used on one thread so that the event loop never waits."""

import asyncio
import contextlib
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Self, TypeVar

import sqlalchemy as sa

from ortoo.common.errors.findings import Finding
from ortoo.namesrv.catalog import tables
from ortoo.namesrv.catalog.database import Database
from ortoo.namesrv.catalog.database_file import exclusive_access
from ortoo.namesrv.catalog.encryption import Encryption
from ortoo.namesrv.catalog.engine import create_database_engine, database_url_of
from ortoo.namesrv.catalog.named_leases import NamedLeases
from ortoo.namesrv.catalog.schema import migrate_to_head
from ortoo.namesrv.catalog.stored_proposals import StoredProposals
from ortoo.namesrv.catalog.stores import Stores
from ortoo.namesrv.catalog.transaction import CatalogTransaction, RowCounts
from ortoo.namesrv.catalog.users import Users
from ortoo.namesrv.decisions.deletions import StoredChanges, TopicDeletion
from ortoo.namesrv.decisions.routes.route_changes import StoredDirectory
from ortoo.namesrv.decisions.topics import Topic

T = TypeVar("T")
PROPOSALS_TIMEOUT_S = 0.3
"""Timeout of one statement about proposals; a replica's report waits for it."""


class Catalog:
    """The open database of a name server. Each call is one transaction, and calls run in the order of submission."""

    def __init__(self, database: Database, proposals: StoredProposals) -> None:
        """Callers use `Catalog.open`."""
        self.proposals = proposals
        """The proposed leaders, read and written on a connection of their own."""
        self.shared = database.engine.dialect.name != "sqlite"
        """Whether other name servers may change the same directory."""
        self._encryption = Encryption()
        self._database = database
        self._engine = database.engine
        self.stores = Stores(database)
        """The registered store of each enode."""
        self._is_read_only = False
        """Whether the database accepted no changes at the last read of the version."""
        self._row_counts = RowCounts()
        """The counts after the last change of this name server. Only the database's thread uses them."""
        self._lock = contextlib.ExitStack()
        """The resources to release on close: the thread, and the lock of a file."""

    @classmethod
    async def open(cls, database_url: str, data_dir: Path, new_id: str) -> Self:
        """Open the database, which is created if it is missing. `new_id` becomes the id of a directory without an id.

        Errors: Invalid (the URL or the folder), Conflict (another name server uses the file), Unsupported (a newer
        schema, or a missing driver). DataLoss if the file is damaged, Unavailable if the database does not answer.
        """
        url = database_url_of(database_url, data_dir)
        engine = create_database_engine(url)
        with contextlib.ExitStack() as held:
            held.enter_context(exclusive_access(url))
            database = Database(engine, "catalog")
            held.callback(database.thread.shutdown)
            catalog = cls(
                database, StoredProposals(Database(create_database_engine(url, PROPOSALS_TIMEOUT_S), "proposals"))
            )
            await asyncio.shield(database.submit(lambda: migrate_to_head(engine, new_id)))
            catalog._lock = held.pop_all()
        return catalog

    async def close(self) -> None:
        """Finish the submitted calls and close the database."""
        await self.proposals.close()
        await self._database.close()
        self._lock.close()

    def findings(self) -> Iterator[Finding]:
        """Yield a finding if the database does not answer, or accepts no changes."""
        if self._is_read_only:
            yield Finding(
                "database unavailable",
                "the name server's database is read-only",
                "topics, groups and users cannot be changed; sending and receiving continue",
                "if it is a standby, set database_url of all name servers to the primary, or promote it. Otherwise "
                "make it writable (default_transaction_read_only). Name servers then continue automatically",
            )
        elif self._database.failure:
            yield Finding(
                "database unavailable",
                f"the name server's database does not answer: {self._database.failure}",
                "topics, groups and users cannot be changed; sending and receiving continue",
                "check PostgreSQL or the disk of data_dir, then the name server's log; no other action is needed",
            )

    async def load_all(self) -> StoredDirectory:
        """Read the whole directory at one moment."""
        return await self._read_at_one_moment(CatalogTransaction.load_all)

    async def load_since(self, version: int, known: Mapping[int, TopicDeletion]) -> StoredChanges:
        """Read the rows that were changed after a version, at one moment.

        `known` has the deleted topics of that version, by id.
        """
        known = dict(known)  # it may change meanwhile
        return await self._read_at_one_moment(lambda stored: stored.load_since(version, known))

    async def _read_at_one_moment(self, read: Callable[[CatalogTransaction], T]) -> T:
        def work() -> T:
            with self._engine.connect() as connection:
                if self.shared:
                    connection.execution_options(isolation_level="REPEATABLE READ")
                with connection.begin():
                    return read(CatalogTransaction(connection, self._encryption))

        return await self._database.submit(work)

    async def topics_by_id(self, topic_ids: Collection[int]) -> list[Topic]:
        """The stored topics with these ids; missing ones are left out. Errors: Unavailable."""
        return await self._database.submit_transaction(
            lambda connection: CatalogTransaction(connection).topics_by_id(topic_ids)
        )

    async def read_version(self) -> int:
        """Read the version of the stored directory, and whether the database accepts changes."""

        def read(connection: sa.Connection) -> int:
            if connection.dialect.name == "postgresql":
                shown = connection.exec_driver_sql("show transaction_read_only").scalar_one()
                self._is_read_only = shown == "on"
            return CatalogTransaction(connection).stored_version()

        return await self._database.submit_transaction(read)

    async def reencrypt_secrets(self, encryption: Encryption) -> int:
        """Encrypt all stored secrets again with `encryption`, and later secrets too; returns the number of users.

        Errors: Invalid if a stored secret cannot be decrypted.
        """
        self._encryption = encryption

        def work(connection: sa.Connection) -> tuple[int, bool]:
            changed = [_reencrypt_table(connection, table, encryption) for table in (tables.users, tables.handle_keys)]
            return Users(connection, encryption).count(), any(changed)

        def forget() -> None:
            with self._engine.connect() as connection:
                connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")

        users, is_changed = await self._database.submit_transaction(work)
        if is_changed and not self.shared:
            await self._database.submit(forget)  # the earlier form of the secrets is still in the write-ahead log
        return users

    def run_lease_transaction(self, decide: Callable[[NamedLeases], T]) -> "asyncio.Future[T]":
        """Run `decide` on the exclusive rights in a transaction, during which no other transaction changes rights."""
        return self._database.submit_transaction(lambda connection: decide(NamedLeases(connection)))

    def run_user_transaction(self, decide: Callable[[Users], T]) -> "asyncio.Future[T]":
        """Run `decide` on the stored users in a transaction."""
        return self._database.submit_transaction(lambda connection: decide(Users(connection, self._encryption)))

    def run_transaction(
        self, decide: Callable[[CatalogTransaction], tuple[T, bool]], *, above_version: int = 0
    ) -> "asyncio.Future[T]":
        """Run `decide` in a transaction; the future has its first result, and its second says whether to commit.

        The committed change gets a version above all earlier versions and above `above_version`.

        After a concurrent change or a broken connection, `decide` runs again on the current contents, unless the change
        may be stored. Submitted transactions run even if their callers stop waiting. Futures complete in submission
        order.
        """

        def work() -> T:
            with self._engine.connect() as connection, connection.begin() as database_transaction:
                transaction = CatalogTransaction(connection, self._encryption)
                transaction.begin_version(above_version, self._row_counts)
                answer, keep = decide(transaction)
                if not keep:
                    database_transaction.rollback()
            if keep:
                self._row_counts = RowCounts(transaction.version, transaction.counts)
            return answer

        return self._database.submit(work)


def _reencrypt_table(connection: sa.Connection, table: sa.Table, encryption: Encryption) -> bool:
    """Store the secrets of a table in the current form; returns whether any changed. Errors: Invalid."""
    [key] = table.primary_key.columns
    found = connection.execute(sa.select(key, table.c.kept_secret)).all()
    secrets = {owner: encryption.decrypt(str(owner), kept) for owner, kept in found}  # also checks the current ones
    outdated = [owner for owner, kept in found if not encryption.is_encrypted_by_current_key(kept)]
    for owner in outdated:
        kept_secret = encryption.encrypt(str(owner), secrets[owner])
        connection.execute(sa.update(table).where(key == owner).values(kept_secret=kept_secret))
    return bool(outdated)
