"""The proposed leaders of enodes, as stored for all name servers of one database.

Proposals have a separate connection and thread with short timeouts. A failover therefore does not wait for other work
on the database. Reports of replicas are answered soon even if the database does not answer.
"""

from typing import Any

import sqlalchemy as sa

from ortoo.namesrv.catalog import tables
from ortoo.namesrv.catalog.database import Database
from ortoo.namesrv.decisions.replicas import Proposal, ReplicaId


class StoredProposals:
    """The proposed leaders in the database: the last proposal for each enode."""

    def __init__(self, database: Database) -> None:
        """Store the proposals in `database`."""
        self._database = database

    async def load_all(self) -> dict[str, Proposal]:
        """Read the last proposal for every enode. Errors: Unavailable, DataLoss."""

        def read(connection: sa.Connection) -> dict[str, Proposal]:
            return {row.enode: _proposal(row) for row in connection.execute(sa.select(tables.proposals))}

        return await self._database.submit_transaction(read)

    async def compare_and_store(self, enode: str, expected_epoch: int, proposal: Proposal) -> Proposal:
        """Replace an enode's stored proposal if it has the epoch `expected_epoch`; returns the proposal stored then.

        A proposal whose epoch is not above the stored epoch is never stored. Errors: Unavailable, DataLoss.
        """
        table = tables.proposals
        values = {"epoch": proposal.epoch, "number": proposal.leader.number, "disk": proposal.leader.disk}

        def work(connection: sa.Connection) -> Proposal:
            is_last = (table.c.enode == enode) & (table.c.epoch == expected_epoch)
            is_above = table.c.epoch < proposal.epoch
            if connection.execute(sa.update(table).where(is_last & is_above).values(values)).rowcount:
                return proposal
            found = connection.execute(sa.select(table).where(table.c.enode == enode)).one_or_none()
            if found is not None:
                return _proposal(found)
            connection.execute(sa.insert(table).values(enode=enode, **values))
            return proposal

        return await self._database.submit_transaction(work)

    async def close(self) -> None:
        """Finish the submitted calls and close the connection."""
        await self._database.close()


def _proposal(row: Any) -> Proposal:
    return Proposal(row.epoch, ReplicaId(row.number, row.disk))
