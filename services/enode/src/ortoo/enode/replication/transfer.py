"""Requests of operators to a driver, and the transfer of leadership."""

import asyncio

from ortoo.common.errors import Conflict
from ortoo.common.process.clock import Clock
from ortoo.enode.replication.protocol.events import Event, TransferLeadership
from ortoo.enode.replication.protocol.identity import ReplicaId
from ortoo.enode.replication.protocol.replica import Replica
from ortoo.enode.replication.protocol.roles import Leader
from ortoo.enode.replication.replicated_log import ReplicatedLog

TRANSFER_TIMEOUT_S = 3.0
"""Time in which a stopping leader tries to transfer leadership."""
TRANSFER_POLL_S = 0.02


class LeadershipTransfer:
    """The part of a driver that operators use."""

    log: ReplicatedLog
    replica: Replica
    clock: Clock
    leading_epoch: int | None
    _refusal: str
    _step: asyncio.Event

    def post(self, event: Event) -> None:
        """Pass an event to the protocol."""
        raise NotImplementedError

    def request(self, event: Event) -> None:
        """Execute an operator's request. Errors: Conflict, with the reason of a refusal."""
        self._refusal = ""
        self.post(event)
        if self._refusal:
            raise Conflict(self._refusal)

    def most_complete_voter(self) -> ReplicaId | None:
        """The successor with the longest log; None when this replica does not lead or no other one may lead."""
        if not isinstance(self.replica.role, Leader):
            return None
        return next(iter(self.replica.successors(self.clock.monotonic_s())), None)

    async def wait_for_step(self) -> None:
        """Wait until the protocol has processed an event."""
        self._step.clear()
        await self._step.wait()

    async def wait_for_transfer(self, epoch: int) -> bool:
        """Wait for the end of a transfer of leadership in `epoch`; returns whether it succeeded."""
        while self.leading_epoch == epoch and self._is_transferring():
            await self.wait_for_step()
        if self.leading_epoch == epoch:
            self.log.resume()
        return self.leading_epoch != epoch

    async def transfer_leadership(self, successor: ReplicaId) -> None:
        """Transfer leadership to `successor`: writes are refused from now on, and accepted ones are committed first."""
        self.log.pause("this replica transfers leadership: retry")
        try:
            await self.log.engine.appender.flush()
            self.request(TransferLeadership(successor))
        finally:
            if self.leading_epoch is not None and not self._is_transferring():
                self.log.resume()

    def _is_transferring(self) -> bool:
        return isinstance(self.replica.role, Leader) and self.replica.role.successor is not None
