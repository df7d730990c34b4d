"""Leases that the server renews for push consumers: a client keeps a message while it is alive and works.

This state is lost with the snode; then the message is delivered again when its lease expires.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from ortoo.common.errors import NotFound
from ortoo.common.groups.pop import GiveBack, Renew
from ortoo.common.process.clock import Clock
from ortoo.common.process.containment import contain
from ortoo.snode.pop.processor import Popping
from ortoo.snode.pop.receipt_handle import ReceiptHandle

SLICE_MS = 60_000
"""Duration of one lease of a message."""
RENEW_BEFORE_S = 20.0
"""Time before its end at which a lease is renewed."""
TOTAL_S = 3 * 3600.0
"""Time after which a message is nacked, even if its client is still alive."""
GONE_DELAY_MS = 1_000
"""Delay before messages of a client that left are delivered again."""
AT_ONCE_MAX = 1_024


@dataclass(slots=True)
class Lease:
    """One message leased to a push consumer."""

    client_id: str
    handle: ReceiptHandle
    taken_at_s: float
    until_s: float = field(init=False)

    def __post_init__(self) -> None:
        self.until_s = self.taken_at_s + SLICE_MS / 1000


class Leases:
    """All messages leased to push consumers of this snode."""

    def __init__(self, popping: Popping, clock: Clock) -> None:
        self._popping = popping
        self._clock = clock
        self._held: dict[ReceiptHandle, Lease] = {}

    def keep(self, lease: Lease) -> None:
        """Renew this lease from now on."""
        self._held[lease.handle] = lease

    def drop(self, handle: ReceiptHandle) -> bool:
        """Stop renewing a settled message; returns whether it was renewed here."""
        return self._held.pop(handle, None) is not None

    def holders(self) -> set[tuple[str, str]]:
        """The clients with messages, as client id and group."""
        return {(lease.client_id, lease.handle.group) for lease in self._held.values()}

    async def renew(self) -> None:
        """Renew leases that end soon; nack messages that were held for too long."""
        now_s = self._clock.monotonic_s()
        ending = [lease for lease in self._held.values() if lease.until_s - now_s <= RENEW_BEFORE_S]
        too_long = [lease for lease in ending if now_s - lease.taken_at_s > TOTAL_S]
        for lease in too_long:
            self.drop(lease.handle)
        await self._settle(too_long, GiveBack((GONE_DELAY_MS,), error="the consumer held the message for 3 hours"))
        renewed = [lease for lease in ending if now_s - lease.taken_at_s <= TOTAL_S]
        done, gone = await self._settle(renewed, Renew(SLICE_MS))
        for lease in gone:
            self.drop(lease.handle)
        for lease in done:
            lease.until_s = now_s + SLICE_MS / 1000

    async def client_left(self, client_id: str, *, counts: bool) -> None:
        """Nack the messages of a client; with `counts` these deliveries count as attempts."""
        left = [lease for lease in self._held.values() if lease.client_id == client_id]
        for lease in left:
            self.drop(lease.handle)
        await self._settle(left, GiveBack((GONE_DELAY_MS,), counts=counts, error="the consumer left"))

    async def _settle(self, leases: list[Lease], verdict: GiveBack | Renew) -> tuple[list[Lease], list[Lease]]:
        """Settle the messages of each group on each enode separately.

        Returns the settled leases, and those that no longer exist. Leases that fail now are in neither; they are
        retried at the next sweep, or expire.
        """
        by_place: dict[tuple[str, int, str], list[Lease]] = {}
        for lease in leases:
            by_place.setdefault((lease.handle.enode, lease.handle.topic_id, lease.handle.group), []).append(lease)
        parts = [
            held[start : start + AT_ONCE_MAX]
            for held in by_place.values()
            for start in range(0, len(held), AT_ONCE_MAX)
        ]
        done, gone = list[Lease](), list[Lease]()
        for settled, over in await asyncio.gather(*(self._settle_part(part, verdict) for part in parts)):
            done += settled
            gone += over
        return done, gone

    async def _settle_part(
        self, leases: Sequence[Lease], verdict: GiveBack | Renew
    ) -> tuple[Sequence[Lease], Sequence[Lease]]:
        try:
            receipts = [(lease.handle, (lease.handle.first_offset,)) for lease in leases]
            stale = await self._popping.settle(receipts, verdict)
        except NotFound:
            return (), leases  # their topic or queue was deleted
        except Exception as error:
            contain("leases", error, leases=len(leases))
            return (), ()
        held = list(zip(leases, stale, strict=True))
        return [lease for lease, offsets in held if not offsets], [lease for lease, offsets in held if offsets]
