"""Releases popped messages that no consumer received: immediately, and without counting an attempt."""

from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace

from ortoo.common.errors import OrtooError
from ortoo.common.groups.pop import GiveBack, LeasePart, Popped, PoppedBatch, PopWish, runs
from ortoo.common.process.retry import Backoff
from ortoo.snode.cluster.runtime import Runtime
from ortoo.snode.enodes.link import EnodeLinks

OWED_MAX_S = 60.0
"""Time for which a release to an unreachable enode is retried. Most leases expire earlier."""
OWED_MAX = 1_000
"""Maximum of pending releases for one unreachable enode. The oldest are dropped."""
Word = Callable[[], Awaitable[object]]


class GivingBack:
    """Releases messages at the enodes that leased them.

    A release to an unreachable enode is retried: after a graceful restart the enode still has its leases.
    """

    def __init__(self, runtime: Runtime, links: EnodeLinks) -> None:
        self._runtime = runtime
        self._links = links
        self._owed: dict[str, deque[tuple[float, Word]]] = {}
        """By unreachable enode: pending requests, each with the time at which it is dropped."""

    async def release(self, enode: str, topic_id: int, group: str, batches: Iterable[PoppedBatch]) -> None:
        """Release messages without counting an attempt."""
        if parts := [LeasePart(one.queue_id, one.number, runs(one.offsets)) for one in batches]:
            verdict = GiveBack(counts=False)
            await self._tell(enode, lambda: self._links.to(enode).settle(topic_id, group, parts, verdict), OWED_MAX_S)

    async def call_off(self, enode: str, wish: PopWish, asked: Awaitable[Popped] | None = None) -> None:
        """Cancel a pop whose consumer has gone, and release the messages that it still returns.

        `asked` is the pop in progress. It is awaited and not cancelled: a stopping enode answers open requests and
        takes no new ones. After a restart it has only the leases.
        """
        is_outstanding = False
        try:
            await self.call_off_once(enode, wish)
        except OrtooError as error:
            if not error.retriable:
                return  # the topic was deleted: there is nothing to release
            is_outstanding = True
        if asked is not None:
            try:
                await self.release(enode, wish.topic_id, wish.group, (await asked).batches)
                return
            except OrtooError as error:
                if not error.retriable:
                    return
                # The pop may or may not have leased messages.
        if is_outstanding:
            self._owe(enode, lambda: self.call_off_once(enode, wish), min(wish.invisible_ms / 1000, OWED_MAX_S))

    async def call_off_once(self, enode: str, wish: PopWish) -> None:
        """Cancel one pop; with an empty request id all pops of its attempt. Errors: NotFound, Unavailable."""
        wish = replace(wish, messages_max=1, wait_ms=0, call_off=True)
        popped = await self._links.to(enode).pop(wish)
        # An enode of a version without cancellation has popped instead. The messages that it returned are released.
        await self.release(enode, wish.topic_id, wish.group, popped.batches)

    async def _tell(self, enode: str, word: Word, for_s: float) -> None:
        try:
            await word()
        except OrtooError as error:
            if error.retriable:  # otherwise its topic or lease no longer exists
                self._owe(enode, word, for_s)

    def _owe(self, enode: str, word: Word, for_s: float) -> None:
        owed = self._owed.get(enode)
        if owed is None:
            owed = self._owed[enode] = deque(maxlen=OWED_MAX)
            self._runtime.background.contained("owed", self._pay(enode, owed))
        owed.append((self._runtime.clock.monotonic_s() + for_s, word))

    async def _pay(self, enode: str, owed: deque[tuple[float, Word]]) -> None:
        """Send the pending requests in order; repeat a request while the enode is unreachable."""
        clock, backoff, failures = self._runtime.clock, Backoff(first_s=0.05, max_s=2.0), 0
        try:
            while True:
                await clock.sleep(backoff.delay_s(failures, self._runtime.randomness) if failures else 0.0)
                if not owed:
                    return
                until_s, word = first = owed[0]
                try:
                    await word()
                    failures = 0
                except OrtooError as error:
                    failures = failures + 1 if error.retriable else 0
                    if error.retriable and clock.monotonic_s() < until_s:
                        continue
                if owed and owed[0] is first:  # newer requests may have displaced it
                    owed.popleft()
        finally:
            del self._owed[enode]
