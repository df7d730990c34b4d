"""Leases that the server renews for push consumers, so that a client keeps a message while it is alive.

A restart of the snode loses these leases. Each message is then delivered again when its lease expires.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from ortoo.common.errors import NotFound
from ortoo.common.groups.pop import Redeliver, Renew
from ortoo.common.process.clock import Clock
from ortoo.common.process.containment import record_contained
from ortoo.snode.pop.processor import PopProcessor
from ortoo.snode.pop.receipt_handle import ReceiptHandle

LEASE_MS = 60_000
"""Duration of one lease of a message."""
RENEW_BEFORE_S = 20.0
"""Time before its end at which a lease is renewed."""
HOLD_MAX_S = 3 * 3600.0
"""Time after which a message is nacked, even if its client is still alive."""
REDELIVERY_DELAY_MS = 1_000
"""Delay before messages of a client that left are delivered again."""
LEASES_PER_REQUEST_MAX = 1_024
MessageKey = tuple[str, int, str, int, int, int]
"""Enode, topic id, group, queue id, number of the lease, offset."""


@dataclass(slots=True)
class AutoRenewedLease:
    """The lease of one message that a push consumer processes."""

    client_id: str
    handle: ReceiptHandle
    """The handle of a lease with this message, and maybe with others."""
    taken_at_s: float
    offset: int = -1
    """The offset of the message; -1 = the first one of the handle."""
    until_s: float = field(init=False)

    def __post_init__(self) -> None:
        if self.offset < 0:
            self.offset = self.handle.first_offset
        self.until_s = self.taken_at_s + LEASE_MS / 1000


class AutoRenewedLeases:
    """The leases of all messages that push consumers of this snode process; they are renewed automatically."""

    def __init__(self, pop_processor: PopProcessor, clock: Clock) -> None:
        self._pop_processor = pop_processor
        self._clock = clock
        self._leases: dict[MessageKey, AutoRenewedLease] = {}

    def add(self, lease: AutoRenewedLease) -> None:
        """Renew this lease from now on."""
        self._leases[_key(lease.handle, lease.offset)] = lease

    def remove(self, handle: ReceiptHandle, offset: int | None = None) -> bool:
        """Stop renewing the lease of a message; returns whether this snode was renewing it.

        Without `offset`, it is the first message of the handle.
        """
        return self._leases.pop(_key(handle, handle.first_offset if offset is None else offset), None) is not None

    def holders(self) -> set[tuple[str, str]]:
        """The clients that have leases here, each as client id and group."""
        return {(lease.client_id, lease.handle.group) for lease in self._leases.values()}

    async def renew(self) -> None:
        """Renew leases that end soon, and nack messages that a consumer has held for too long."""
        now_s = self._clock.monotonic_s()
        ending = [lease for lease in self._leases.values() if lease.until_s - now_s <= RENEW_BEFORE_S]
        too_long = [lease for lease in ending if now_s - lease.taken_at_s > HOLD_MAX_S]
        for lease in too_long:
            self.remove(lease.handle, lease.offset)
        await self._settle(
            too_long, Redeliver((REDELIVERY_DELAY_MS,), error="the consumer held the message for 3 hours")
        )
        renewed = [lease for lease in ending if now_s - lease.taken_at_s <= HOLD_MAX_S]
        done, ended = await self._settle(renewed, Renew(LEASE_MS))
        for lease in ended:
            self.remove(lease.handle, lease.offset)
        for lease in done:
            lease.until_s = now_s + LEASE_MS / 1000

    async def release_client(self, client_id: str, *, counts: bool) -> None:
        """Nack the messages of a client that has left. `counts` = the nacks count as failed attempts."""
        leases = [lease for lease in self._leases.values() if lease.client_id == client_id]
        for lease in leases:
            self.remove(lease.handle, lease.offset)
        await self._settle(leases, Redeliver((REDELIVERY_DELAY_MS,), counts=counts, error="the consumer left"))

    async def _settle(
        self, leases: list[AutoRenewedLease], verdict: Redeliver | Renew
    ) -> tuple[list[AutoRenewedLease], list[AutoRenewedLease]]:
        """Settle the messages of each group on each enode separately.

        Returns the settled leases, and those that no longer exist. Leases that cannot be settled now are in
        neither result. They are retried at the next sweep, or expire.
        """
        by_place: dict[tuple[str, int, str], list[AutoRenewedLease]] = {}
        for lease in leases:
            by_place.setdefault((lease.handle.enode, lease.handle.topic_id, lease.handle.group), []).append(lease)
        parts = [
            held[start : start + LEASES_PER_REQUEST_MAX]
            for held in by_place.values()
            for start in range(0, len(held), LEASES_PER_REQUEST_MAX)
        ]
        done, ended = list[AutoRenewedLease](), list[AutoRenewedLease]()
        for settled, over in await asyncio.gather(*(self._settle_part(part, verdict) for part in parts)):
            done += settled
            ended += over
        return done, ended

    async def _settle_part(
        self, leases: Sequence[AutoRenewedLease], verdict: Redeliver | Renew
    ) -> tuple[Sequence[AutoRenewedLease], Sequence[AutoRenewedLease]]:
        try:
            receipts = [(lease.handle, (lease.offset,)) for lease in leases]
            stale = await self._pop_processor.settle(receipts, verdict)
        except NotFound:
            return (), leases  # their topic or queue was deleted
        except Exception as error:
            record_contained("leases", error, leases=len(leases))
            return (), ()
        held = list(zip(leases, stale, strict=True))
        return [lease for lease, offsets in held if not offsets], [lease for lease, offsets in held if offsets]


def _key(handle: ReceiptHandle, offset: int) -> MessageKey:
    return handle.enode, handle.topic_id, handle.group, handle.queue_id, handle.number, offset
