"""The registered store of each enode, as stored for all name servers of one database."""

from typing import Any

import sqlalchemy as sa

from ortoo.namesrv.catalog import tables
from ortoo.namesrv.catalog.database import Database
from ortoo.namesrv.decisions.known_stores import KnownStore


class Stores:
    """The registered stores in the database: one row for each enode that ever registered."""

    def __init__(self, database: Database) -> None:
        """Save the registered stores in `database`."""
        self._database = database

    async def all(self) -> dict[str, KnownStore]:
        """Read the registered stores of all enodes. Errors: Unavailable, DataLoss."""

        def read(connection: sa.Connection) -> dict[str, KnownStore]:
            return {row.enode: _known(row) for row in connection.execute(sa.select(tables.stores))}

        return await self._database.submit_transaction(read)

    async def put(self, store: KnownStore) -> KnownStore:
        """Save an enode's registered store, unless the saved one has the same or a higher version.

        Returns the store that is saved now. Errors: Unavailable, DataLoss.
        """
        table = tables.stores
        values = tables.row_of(table, store)

        def work(connection: sa.Connection) -> KnownStore:
            is_older = (table.c.enode == store.enode) & (table.c.version < store.version)
            if connection.execute(sa.update(table).where(is_older).values(values)).rowcount:
                return store
            found = connection.execute(sa.select(table).where(table.c.enode == store.enode)).one_or_none()
            if found is not None:
                return _known(found)
            connection.execute(sa.insert(table).values(values))
            return store

        return await self._database.submit_transaction(work)


def _known(row: Any) -> KnownStore:
    return KnownStore(row.enode, row.store_id, row.replicas, row.version, row.accepted, row.log_start, row.log_end)
