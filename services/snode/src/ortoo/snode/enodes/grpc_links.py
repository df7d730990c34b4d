"""The gRPC links of a snode to enodes: one link to the leader of each enode, by the latest known epoch."""

from types import TracebackType
from typing import Self

from ortoo.common.errors import NotLeader
from ortoo.common.grpc.channels import Channels
from ortoo.common.process.background import Background
from ortoo.common.process.clock import Clock
from ortoo.snode.enodes.grpc_link import GrpcEnodeLink
from ortoo.snode.enodes.replica_link import HeldEnodeAppends

CHANNEL_RETENTION_S = 60.0
"""Time for which the connection to a replica stays open after the replica stopped leading."""
RETIRE_POLL_S = 0.05
IN_FLIGHT_GRACE_S = 0.2
"""After a change of leader, answers of the previous leader to pops may arrive for this time. Pops that wait at a lost
leader are retried at the next leader after this time."""


class GrpcLinks:
    """The links to all enodes, with one gRPC connection for each enode."""

    def __init__(
        self, *, channels: Channels, background: Background, clock: Clock, timeout_s: float, in_flight_bytes_max: int
    ) -> None:
        """Every request to an enode is answered within `timeout_s`, possibly with an error."""
        self.clock = clock
        self.timeout_s = timeout_s
        self.in_flight_bytes_max = in_flight_bytes_max
        self.background = background
        self._links: dict[str, GrpcEnodeLink] = {}
        self._held_appends: dict[str, HeldEnodeAppends] = {}
        self._channels = channels

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for enode, link in self._links.items():
            closed_error = link.close()
            link.close_leases()
            self._held_appends[enode].fail_all(closed_error)
        self._links.clear()

    def to(self, enode: str, address: str, epoch: int = 0) -> GrpcEnodeLink:
        """The link to the leader of an enode. A later epoch, or another address, gets a new link.

        Requests in flight on the older link fail at once, with an unknown outcome; unsent requests move to the new
        link. An older epoch, or another address in the same epoch, is ignored. The exception is a link that has been
        disconnected for `timeout_s`.
        """
        current = self._links.get(enode)
        if current is not None:
            is_old = epoch < current.epoch or (epoch == current.epoch > 0)
            if (current.address, current.epoch) == (address, epoch) or (is_old and self._is_current(current)):
                return current
        link = self._open(enode, address, epoch)
        if current is not None:
            current.close(NotLeader(leader_address=address, epoch=epoch) if epoch > current.epoch else None)
            self.background.run_contained("drop", self._drop_channel(current))
        return link

    def _is_current(self, link: GrpcEnodeLink) -> bool:
        return link.connected or self.clock.monotonic_s() < link.opened_s + self.timeout_s

    def _open(self, enode: str, address: str, epoch: int) -> GrpcEnodeLink:
        link = self._links[enode] = GrpcEnodeLink(enode, address, epoch, self._channels.channel_to(address), self)
        return link

    def held_appends(self, enode: str) -> HeldEnodeAppends:
        """The appends that wait for the enode's next leader."""
        held = self._held_appends.get(enode)
        if held is None:
            held = self._held_appends[enode] = HeldEnodeAppends(
                lambda: self._links[enode].appends, self.clock, self.timeout_s, self.in_flight_bytes_max
            )
            self.background.run_contained("held appends", held.run())
        return held

    def redirect(self, enode: str, moved: NotLeader) -> GrpcEnodeLink:
        """The link to the leader that a replica reported, because the replica itself does not lead (`moved`).

        The replica's own link is closed only when the replica has answered all open requests.
        """
        current = self._links[enode]
        if not moved.leader_address or moved.epoch <= current.epoch:
            return current
        self.background.run_contained("retire", self._retire(current))
        return self._open(enode, moved.leader_address, moved.epoch)

    async def _retire(self, link: GrpcEnodeLink) -> None:
        link.fail_reads()
        while not link.is_idle:
            await self.clock.sleep(RETIRE_POLL_S)
        link.close()
        await self._drop_channel(link)

    async def _drop_channel(self, link: GrpcEnodeLink) -> None:
        """Close the connection to an address that no link uses. A former leader keeps it for a while."""
        await self.clock.sleep(IN_FLIGHT_GRACE_S)
        link.close_leases()
        if link.epoch:
            await self.clock.sleep(CHANNEL_RETENTION_S)
        if all(one.address != link.address for one in self._links.values()):
            await self._channels.drop(link.address)
