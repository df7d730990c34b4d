"""The stored directory: topics and groups in a database, reached on one thread so that the loop never waits for it."""

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Self, TypeVar

import sqlalchemy as sa

from ortoo.common.errors.findings import Finding
from ortoo.namesrv.catalog import tables
from ortoo.namesrv.catalog.database import Database
from ortoo.namesrv.catalog.database_file import kept_alone
from ortoo.namesrv.catalog.encryption import Encryption
from ortoo.namesrv.catalog.engine import engine_of, url_of
from ortoo.namesrv.catalog.proposals import Proposals
from ortoo.namesrv.catalog.rights import Rights
from ortoo.namesrv.catalog.schema import prepare
from ortoo.namesrv.catalog.transaction import Transaction
from ortoo.namesrv.catalog.users import Users
from ortoo.namesrv.decisions.route_changes import Contents

T = TypeVar("T")
PROPOSALS_TIMEOUT_S = 0.3
"""How long one statement about proposals may take; a member that asks waits for it."""


class Catalog:
    """An open database. Work runs in the order in which it is given, one transaction each."""

    def __init__(self, database: Database, proposals: Proposals) -> None:
        """Use `open`."""
        self.proposals = proposals
        """Who was proposed to lead, reached apart from everything else."""
        self.shared = database.engine.dialect.name != "sqlite"
        """Whether other name servers may change the same directory."""
        self._encryption = Encryption()
        self._database = database
        self._engine = database.engine
        self._held = contextlib.ExitStack()
        """What is given back at the end: the thread, and a file."""

    @classmethod
    async def open(cls, database_url: str, data_dir: Path, new_id: str) -> Self:
        """Open or create the database; a directory that has no id yet gets `new_id`, for good.

        Errors: Invalid (the URL or the folder), Conflict (another name server has the file), Unsupported (a newer
        schema, or a driver is missing), DataLoss (the file is damaged), Unavailable (the database does not answer).
        """
        url = url_of(database_url, data_dir)
        engine = engine_of(url)
        with contextlib.ExitStack() as held:
            held.enter_context(kept_alone(url))
            database = Database(engine, "catalog")
            held.callback(database.thread.shutdown)
            catalog = cls(database, Proposals(Database(engine_of(url, PROPOSALS_TIMEOUT_S), "proposals")))
            await asyncio.shield(database.submit(lambda: prepare(engine, new_id)))
            catalog._held = held.pop_all()
        return catalog

    async def close(self) -> None:
        """Finish the work that was given and close the database."""
        await self.proposals.close()
        await self._database.close()
        self._held.close()

    def findings(self) -> Iterator[Finding]:
        """Whether it answers."""
        if self._database.failure:
            yield Finding(
                "database away",
                f"the name server's database does not answer: {self._database.failure}",
                "topics, groups and users cannot be changed; sending and receiving go on",
                "look at PostgreSQL, or at the disk of data_dir, then at the name server's log; it heals by itself",
            )

    async def contents(self) -> Contents:
        """Everything that is stored, as of one moment."""

        def read() -> Contents:
            with self._engine.connect() as connection:
                if self.shared:
                    connection.execution_options(isolation_level="REPEATABLE READ")
                with connection.begin():
                    return Transaction(connection, self._encryption).contents()

        return await self._database.submit(read)

    async def version(self) -> int:
        """The version of what is stored."""
        return await self._database.within(lambda connection: Transaction(connection).stored_version())

    async def keep_secrets(self, encryption: Encryption) -> int:
        """Keep secrets so from now on, also those that are there; returns the number of users.

        Errors: Invalid when one cannot be read.
        """
        self._encryption = encryption

        def work(connection: sa.Connection) -> tuple[int, bool]:
            changed = [_renew(connection, table, encryption) for table in (tables.users, tables.handle_keys)]
            return Users(connection, encryption).count(), any(changed)

        def forget() -> None:
            with self._engine.connect() as connection:
                connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")

        users, is_changed = await self._database.within(work)
        if is_changed and not self.shared:
            await self._database.submit(forget)  # what was kept otherwise is in the file beside the database
        return users

    def change_rights(self, decide: Callable[[Rights], T]) -> "asyncio.Future[T]":
        """Run `decide` on the stored rights in a transaction; nobody else changes them meanwhile."""
        return self._database.within(lambda connection: decide(Rights(connection)))

    def change_users(self, decide: Callable[[Users], T]) -> "asyncio.Future[T]":
        """Run `decide` on the stored users in a transaction."""
        return self._database.within(lambda connection: decide(Users(connection, self._encryption)))

    def change(self, decide: Callable[[Transaction], tuple[T, bool]], *, above: int = 0) -> "asyncio.Future[T]":
        """Run `decide` in a transaction; keep what it wrote if its second answer is true. The future has the first.

        Its version is larger than all before, and than `above`.

        It is run again, on what is stored then, when nothing was stored because somebody else was quicker or the
        connection broke. Once given the work is done, whether or not anybody waits for it; futures end in its order.
        """

        def work() -> T:
            with self._engine.connect() as connection, connection.begin() as database_transaction:
                transaction = Transaction(connection, self._encryption)
                transaction.begin_change(above)
                answer, keep = decide(transaction)
                if not keep:
                    database_transaction.rollback()
                return answer

        return self._database.submit(work)


def _renew(connection: sa.Connection, table: sa.Table, encryption: Encryption) -> bool:
    """Keep the secrets of a table as they are to be kept; whether that changed any. Errors: Invalid."""
    [key] = table.primary_key.columns
    found = connection.execute(sa.select(key, table.c.kept_secret)).all()
    secrets = {owner: encryption.secret(str(owner), kept) for owner, kept in found}  # also of those that stay
    outdated = [owner for owner, kept in found if not encryption.is_current(kept)]
    for owner in outdated:
        kept_secret = encryption.kept(str(owner), secrets[owner])
        connection.execute(sa.update(table).where(key == owner).values(kept_secret=kept_secret))
    return bool(outdated)
