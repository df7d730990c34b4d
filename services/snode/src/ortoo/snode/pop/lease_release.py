"""Releases popped messages that no consumer received: immediately, and without counting an attempt."""

from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace

from ortoo.common.errors import OrtooError
from ortoo.common.groups.pop import LeasePart, Popped, PoppedBatch, PopRequest, Redeliver, ranges_of
from ortoo.common.process.retry import Backoff
from ortoo.snode.cluster.runtime import Runtime
from ortoo.snode.enodes.link import EnodeLinks

RETRY_MAX_S = 60.0
"""Time for which a release to an unreachable enode is retried. Most leases expire earlier."""
RETRIES_MAX = 1_000
"""Maximum of pending releases for one unreachable enode. Above it, the oldest are dropped."""
ReleaseOperation = Callable[[], Awaitable[object]]


class LeaseReleaser:
    """Releases leased messages at their enodes.

    A release that an unreachable enode did not get is retried, because the enode keeps its leases over a graceful
    restart.
    """

    def __init__(self, runtime: Runtime, links: EnodeLinks) -> None:
        self._runtime = runtime
        self._links = links
        self._pending: dict[str, deque[tuple[float, ReleaseOperation]]] = {}
        """By unreachable enode: pending requests, each with the time at which it is dropped."""

    async def release(self, enode: str, topic_id: int, group: str, batches: Iterable[PoppedBatch]) -> None:
        """Release leased messages without counting an attempt."""
        if parts := [LeasePart(one.queue_id, one.number, ranges_of(one.offsets)) for one in batches]:
            verdict = Redeliver(counts=False)
            await self._run_or_retry(
                enode, lambda: self._links.to(enode).settle(topic_id, group, parts, verdict), RETRY_MAX_S
            )

    async def cancel(self, enode: str, request: PopRequest, pop: Awaitable[Popped] | None = None) -> None:
        """Cancel a pop whose consumer has gone, and release the messages that the pop still returns.

        `pop` is the pop in progress. It is awaited and not cancelled, because an enode that shuts down answers open
        requests and accepts no new ones. After its restart it knows only the leases.
        """
        is_outstanding = False
        try:
            await self.cancel_once(enode, request)
        except OrtooError as error:
            if not error.retriable:
                return  # the topic was deleted: there is nothing to release
            is_outstanding = True
        if pop is not None:
            try:
                await self.release(enode, request.topic_id, request.group, (await pop).batches)
                return
            except OrtooError as error:
                if not error.retriable:
                    return
                # The pop may or may not have leased messages.
        if is_outstanding:
            self._retry_later(
                enode, lambda: self.cancel_once(enode, request), min(request.invisible_ms / 1000, RETRY_MAX_S)
            )

    async def cancel_once(self, enode: str, request: PopRequest) -> None:
        """Cancel the pop `request`, or all pops of its attempt if its request id is empty.

        Errors: NotFound, Unavailable.
        """
        request = replace(request, messages_max=1, wait_ms=0, cancel=True)
        popped = await self._links.to(enode).pop(request)
        # An enode of a version without cancellation has popped instead. The messages that it returned are released.
        await self.release(enode, request.topic_id, request.group, popped.batches)

    async def _run_or_retry(self, enode: str, operation: ReleaseOperation, retry_for_s: float) -> None:
        try:
            await operation()
        except OrtooError as error:
            if error.retriable:  # otherwise its topic or lease no longer exists
                self._retry_later(enode, operation, retry_for_s)

    def _retry_later(self, enode: str, operation: ReleaseOperation, retry_for_s: float) -> None:
        pending = self._pending.get(enode)
        if pending is None:
            pending = self._pending[enode] = deque(maxlen=RETRIES_MAX)
            self._runtime.background.run_contained("owed", self._retry_pending(enode, pending))
        pending.append((self._runtime.clock.monotonic_s() + retry_for_s, operation))

    async def _retry_pending(self, enode: str, pending: deque[tuple[float, ReleaseOperation]]) -> None:
        """Send the pending requests in order; retry each while its enode is unreachable."""
        clock, backoff, failures = self._runtime.clock, Backoff(first_s=0.05, max_s=2.0), 0
        try:
            while True:
                await clock.sleep(backoff.delay_s(failures, self._runtime.randomness) if failures else 0.0)
                if not pending:
                    return
                until_s, operation = first = pending[0]
                try:
                    await operation()
                    failures = 0
                except OrtooError as error:
                    failures = failures + 1 if error.retriable else 0
                    if error.retriable and clock.monotonic_s() < until_s:
                        continue
                if pending and pending[0] is first:  # newer requests may have displaced it
                    pending.popleft()
        finally:
            del self._pending[enode]
