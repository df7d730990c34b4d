"""What pops got and nobody looked at goes back: at once, and as the same attempt."""

import contextlib
from collections.abc import Iterable
from dataclasses import replace

from ortoo.common.errors import OrtooError, Unavailable
from ortoo.common.groups.pop import GiveBack, LeasePart, PoppedBatch, PopWish, runs
from ortoo.common.process.retry import Backoff
from ortoo.snode.cluster.runtime import Runtime
from ortoo.snode.enodes.link import EnodeLinks

CALLING_OFF_MAX_S = 60.0
"""So long an enode that is away is told that a pop was called off."""


class GivingBack:
    """Gives messages back to the enodes that leased them."""

    def __init__(self, runtime: Runtime, links: EnodeLinks) -> None:
        self._runtime = runtime
        self._links = links

    async def release(self, enode: str, topic_id: int, group: str, batches: Iterable[PoppedBatch]) -> None:
        """Give messages back; when their enode cannot be asked, they come again when their leases end."""
        parts = [LeasePart(one.queue_id, one.number, runs(one.offsets)) for one in batches]
        if parts:
            with contextlib.suppress(OrtooError):
                await self._links.to(enode).settle(topic_id, group, parts, GiveBack(counts=False))

    async def call_off(self, enode: str, wish: PopWish) -> None:
        """Say that nobody waits for a pop any more, until the enode has heard it or the lease would be over."""
        clock, backoff, attempt = self._runtime.clock, Backoff(first_s=0.05, max_s=2.0), 0
        until_s = clock.monotonic_s() + min(wish.invisible_ms / 1000, CALLING_OFF_MAX_S)
        with contextlib.suppress(OrtooError):  # the topic has gone: nothing is left to give back
            while True:
                try:
                    await self.call_off_once(enode, wish)
                except Unavailable:
                    if clock.monotonic_s() >= until_s:
                        raise
                else:
                    break
                await clock.sleep(backoff.delay_s(attempt, self._runtime.randomness))
                attempt += 1

    async def call_off_once(self, enode: str, wish: PopWish) -> None:
        """Call off a pop, or with an empty request id all of its attempt. Errors: NotFound, Unavailable."""
        wish = replace(wish, messages_max=1, wait_ms=0, call_off=True)
        popped = await self._links.to(enode).pop(wish)
        # An enode that does not know how to call off has popped instead; what it found is what is to go back.
        await self.release(enode, wish.topic_id, wish.group, popped.batches)
