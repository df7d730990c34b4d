"""Leases that the server renews for push consumers: a message stays with a client for as long as it lives and works.

What a snode knows of it is lost with the snode; then the message comes again when its slice is over.
"""

from dataclasses import dataclass, field

from ortoo.common.errors import OrtooError
from ortoo.common.groups.pop import GiveBack, Renew
from ortoo.common.process.clock import Clock
from ortoo.common.process.logs import get_logger
from ortoo.snode.pop.popping import Popping
from ortoo.snode.pop.receipt_handle import ReceiptHandle

SLICE_MS = 60_000
"""How long a message is leased at once."""
RENEW_BEFORE_S = 20.0
"""How long before the end of its slice a lease is renewed."""
TOTAL_S = 3 * 3600.0
"""After so long a message is given back, even if its client still lives."""
GONE_DELAY_MS = 1_000
"""When messages of a client that left come again."""
AT_ONCE_MAX = 1_024
_log = get_logger("rocketmq")


@dataclass(slots=True)
class Lease:
    """One message that a push consumer has."""

    client_id: str
    handle: ReceiptHandle
    taken_at_s: float
    until_s: float = field(init=False)

    def __post_init__(self) -> None:
        self.until_s = self.taken_at_s + SLICE_MS / 1000


class Leases:
    """All messages that push consumers of this snode have."""

    def __init__(self, popping: Popping, clock: Clock) -> None:
        self._popping = popping
        self._clock = clock
        self._held: dict[ReceiptHandle, Lease] = {}

    def keep(self, lease: Lease) -> None:
        """Renew this lease from now on."""
        self._held[lease.handle] = lease

    def drop(self, handle: ReceiptHandle) -> bool:
        """Something became of the message; whether it was one of these."""
        return self._held.pop(handle, None) is not None

    async def renew(self) -> None:
        """Renew what would end soon; give back what was held for too long."""
        now_s = self._clock.monotonic_s()
        ending = [lease for lease in self._held.values() if lease.until_s - now_s <= RENEW_BEFORE_S]
        too_long = [lease for lease in ending if now_s - lease.taken_at_s > TOTAL_S]
        for lease in too_long:
            self.drop(lease.handle)
        await self._settle(too_long, GiveBack((GONE_DELAY_MS,), error="the consumer held the message for 3 hours"))
        renewed = [lease for lease in ending if now_s - lease.taken_at_s <= TOTAL_S]
        for lease in await self._settle(renewed, Renew(SLICE_MS)):
            self.drop(lease.handle)
        for lease in renewed:
            lease.until_s = now_s + SLICE_MS / 1000

    async def client_left(self, client_id: str, *, counts: bool) -> None:
        """Give back what a client has; `counts` says whether these deliveries were attempts."""
        left = [lease for lease in self._held.values() if lease.client_id == client_id]
        for lease in left:
            self.drop(lease.handle)
        await self._settle(left, GiveBack((GONE_DELAY_MS,), counts=counts, error="the consumer left"))

    async def _settle(self, leases: list[Lease], verdict: GiveBack | Renew) -> list[Lease]:
        """The leases that are not any more. What fails now is tried again at the next look, or ends with its slice."""
        gone: list[Lease] = []
        for start in range(0, len(leases), AT_ONCE_MAX):
            part = leases[start : start + AT_ONCE_MAX]
            try:
                stale = await self._popping.settle(
                    [(lease.handle, (lease.handle.first_offset,)) for lease in part], verdict
                )
            except OrtooError as error:
                _log.warning("leases were not settled", leases=len(part), reason=str(error))
                continue
            gone += [lease for lease, offsets in zip(part, stale, strict=True) if offsets]
        return gone
