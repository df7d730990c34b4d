"""The links of a snode to the enodes behind the wire: each to whoever leads, the later epoch being right."""

from types import TracebackType
from typing import Self

from ortoo.common.errors import Moved
from ortoo.common.grpc.channels import Channels
from ortoo.common.process.background import Background
from ortoo.common.process.clock import Clock
from ortoo.snode.enodes.grpc_link import GrpcEnodeLink
from ortoo.snode.enodes.member_link import Held

MEMBER_KEPT_S = 60.0
"""How long the way to a member stays open that does not lead any more."""
RETIRING_LOOK_S = 0.05
ON_THEIR_WAY_S = 0.2
"""So long after another one leads answers of pops may arrive that the one before has given: longer than they travel.
Whoever waits at a leader that is gone asks the next one so much later."""


class GrpcLinks:
    """Links over gRPC, one connection an enode."""

    def __init__(
        self, *, channels: Channels, background: Background, clock: Clock, timeout_s: float, in_flight_bytes_max: int
    ) -> None:
        """Every request to an enode is answered within `timeout_s`, if only by an error."""
        self.clock = clock
        self.timeout_s = timeout_s
        self.in_flight_bytes_max = in_flight_bytes_max
        self.background = background
        self._links: dict[str, GrpcEnodeLink] = {}
        self._held: dict[str, Held] = {}
        self._channels = channels

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for enode, link in self._links.items():
            gone = link.close()
            link.break_off()
            self._held[enode].fail_all(gone)
        self._links.clear()

    def to(self, enode: str, address: str, epoch: int = 0) -> GrpcEnodeLink:
        """The link to an enode's leader; a later epoch, or another address, gets a new one.

        What an older link still has on its way fails at once, its outcome unknown; what was not sent goes to the new
        one. Of two addresses in one epoch, or news of an epoch that is over, the link that there is is right unless it
        cannot be reached for long.
        """
        known = self._links.get(enode)
        if known is not None:
            is_old = epoch < known.epoch or (epoch == known.epoch > 0)
            if (known.address, known.epoch) == (address, epoch) or (is_old and self._is_right(known)):
                return known
        link = self._open(enode, address, epoch)
        if known is not None:
            known.close(Moved(leader_address=address, epoch=epoch) if epoch > known.epoch else None)
            self.background.contained("drop", self._drop(known))
        return link

    def _is_right(self, link: GrpcEnodeLink) -> bool:
        return link.connected or self.clock.monotonic_s() < link.opened_s + self.timeout_s

    def _open(self, enode: str, address: str, epoch: int) -> GrpcEnodeLink:
        link = self._links[enode] = GrpcEnodeLink(enode, address, epoch, self._channels.to(address), self)
        return link

    def held(self, enode: str) -> Held:
        """The appends that wait for the enode's next leader."""
        held = self._held.get(enode)
        if held is None:
            held = self._held[enode] = Held(
                lambda: self._links[enode].appends, self.clock, self.timeout_s, self.in_flight_bytes_max
            )
            self.background.contained("held appends", held.run())
        return held

    def learn(self, enode: str, moved: Moved) -> GrpcEnodeLink:
        """Whom to ask after a member said that another one leads.

        A member that says so lives: what else it was asked it answers as well, and is left when it has.
        """
        known = self._links[enode]
        if not moved.leader_address or moved.epoch <= known.epoch:
            return known
        self.background.contained("retire", self._retire(known))
        return self._open(enode, moved.leader_address, moved.epoch)

    async def _retire(self, link: GrpcEnodeLink) -> None:
        link.fail_reads()
        while not link.is_idle:
            await self.clock.sleep(RETIRING_LOOK_S)
        link.close()
        await self._drop(link)

    async def _drop(self, link: GrpcEnodeLink) -> None:
        """Close the way to an address that nobody uses any more. A member may be asked about other things, for long."""
        await self.clock.sleep(ON_THEIR_WAY_S)
        link.break_off()
        if link.epoch:
            await self.clock.sleep(MEMBER_KEPT_S)
        if all(one.address != link.address for one in self._links.values()):
            await self._channels.drop(link.address)
