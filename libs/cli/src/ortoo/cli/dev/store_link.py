"""The snode's link to an enode of the same process: calls instead of the wire, with the same promises.

What happens for every batch goes straight to the store. Everything else is what the link over the wire does, with the
enode's own handlers in the place of a stub.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from types import TracebackType
from typing import Any, Self

from ortoo.common.errors import Moved, OrtooError, Overloaded, Unavailable
from ortoo.common.filters.pushdown import Pushdown
from ortoo.common.groups.pop import GiveBack, LeasePart, Popped, PopWish, Stale, Verdict
from ortoo.common.process.background import Background
from ortoo.common.process.clock import Clock
from ortoo.common.records.sealed_batch import SealedBatch
from ortoo.enode.app import RunningEnode
from ortoo.enode.changes.halves import HalfOpen
from ortoo.enode.deferred.check_watchers import Watcher
from ortoo.enode.rpc.service import EnodeService
from ortoo.enode.store.store import FlushMode as StoreFlushMode
from ortoo.snode.enodes.grpc_link import GrpcEnodeLink
from ortoo.snode.enodes.link import (
    Appended,
    DueHalf,
    EnodeLink,
    Fetched,
    FlushMode,
    LockKey,
    OpenHalf,
)

_MODE_OF = {
    FlushMode.DEFAULT: StoreFlushMode.DEFAULT,
    FlushMode.SYNC: StoreFlushMode.SYNC,
    FlushMode.ASYNC: StoreFlushMode.ASYNC,
}
_MODE_TO = {mode: number for number, mode in _MODE_OF.items()}
FETCH_BYTES = 1 << 20
"""What one read answers at most, unless it says otherwise."""
ATTACH_INTERVAL_S = 5.0


class StoreLinks:
    """Links of a snode whose only enode lives in this process. `StoreLinks.of(enode)` is a `LinkFactory`."""

    @staticmethod
    def of(enode: RunningEnode) -> "Callable[..., StoreLinks]":
        """What `open_snode` takes as `links`."""

        def links(*, background: Background, clock: Clock, in_flight_bytes_max: int, **_: object) -> StoreLinks:
            return StoreLinks(StoreLink(enode, background, clock, in_flight_bytes_max))

        return links

    def __init__(self, link: "StoreLink") -> None:
        self._link = link

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._link.close()

    def to(self, enode: str, address: str, epoch: int = 0) -> EnodeLink:
        """The link to the one enode. Errors: Unavailable for another one, which this process does not have."""
        if enode != self._link.enode:
            raise Unavailable(f"`ortoo dev` has one enode, {self._link.enode}, and not {enode}")
        return self._link


class Handlers:
    """The handlers of an enode, called as a stub is."""

    def __init__(self, service: EnodeService) -> None:
        """Call those of `service`."""
        self._service = service

    def __getattr__(self, method: str) -> Callable[..., Awaitable[Any]]:
        handler = getattr(self._service, method)

        def call(request: Any, timeout: float = 0.0) -> Awaitable[Any]:
            answer: Awaitable[Any] = handler(request, None)
            return answer

        return call


class StoreLink(GrpcEnodeLink):
    """The enode's store, as the snode sees an enode."""

    def __init__(self, enode: RunningEnode, background: Background, clock: Clock, in_flight_bytes_max: int) -> None:
        """Call the store of `enode`; at most `in_flight_bytes_max` bytes wait for the disk."""
        # The streams of a link over the wire are not even made.
        self.enode = enode.name
        self._peer = f"enode {enode.name}"
        self._stub: Any = Handlers(enode.service)
        self._timeout_s = 0.0
        self._store = enode.store
        self._topics = enode.topics
        self._intake = enode.intake
        self._pops = enode.pops
        self._background = background
        self._clock = clock
        self._bytes_max = in_flight_bytes_max
        self._bytes = 0
        self._closed = False

    @property
    def connected(self) -> bool:
        """Whether the store can be called."""
        return not self._closed

    def close(self, moved: Moved | None = None) -> OrtooError:
        """Take no more calls."""
        self._closed = True
        return Unavailable(f"enode {self.enode} is closing")

    async def _call(self, method: Callable[[Any], Any], request: object, timeout_s: float | None = None) -> Any:
        """Ask the only one that there is."""
        return await method(self._stub)(request)

    def append(
        self, topic_id: int, queue_id: int, batch: SealedBatch, flush_mode: FlushMode = FlushMode.DEFAULT
    ) -> asyncio.Future[Appended]:
        """Store one batch behind those given before."""
        answer: asyncio.Future[Appended] = asyncio.get_running_loop().create_future()
        size_bytes = len(batch.records)
        if self._closed:
            answer.set_exception(Unavailable(f"enode {self.enode} is closing; nothing was stored"))
        elif self._bytes and self._bytes + size_bytes > self._bytes_max:
            answer.set_exception(
                Overloaded(f"{self._bytes} bytes are on their way to enode {self.enode}; retry", retry_after_ms=50)
            )
        else:
            self._bytes += size_bytes
            # Tasks start in the order in which they are made, and the store takes a batch at the first step of its
            # task: batches of a queue keep their order.
            self._background.spawn("append", self._append(topic_id, queue_id, batch, flush_mode, answer))
        return answer

    async def _append(
        self,
        topic_id: int,
        queue_id: int,
        batch: SealedBatch,
        flush_mode: FlushMode,
        answer: asyncio.Future[Appended],
    ) -> None:
        try:
            batch.check()
            if self._topics.lacks(topic_id, queue_id):
                await self._topics.arrival(topic_id, queue_id)
            stored = await self._intake.append(topic_id, queue_id, batch, flush_mode=_MODE_OF[flush_mode])
            result = Appended(stored.first_offset, stored.stored_at_ms, _MODE_TO[stored.flush_mode])
        except Exception as error:
            if not answer.done():
                answer.set_exception(error)
        except asyncio.CancelledError:
            if not answer.done():
                answer.set_exception(Unavailable(f"enode {self.enode} is closing; the outcome is unknown"))
            raise
        else:
            if not answer.done():
                answer.set_result(result)
        finally:
            self._bytes -= len(batch.records)

    async def fetch(
        self,
        topic_id: int,
        queue_id: int,
        from_offset: int,
        *,
        bytes_max: int = 0,
        wait_ms: int = 0,
        group: str = "",
        generation: int = 0,
        pushdown: Pushdown | None = None,
        any_member: bool = False,
    ) -> Fetched:
        """Read whole batches; at the end of the queue wait so long."""
        key = (topic_id, group, queue_id)
        self._store.locks.check(key, generation)
        if self._topics.lacks(topic_id, queue_id):
            await self._topics.arrival(topic_id, queue_id)
        fetched = await self._store.fetch(
            topic_id, queue_id, from_offset, bytes_max=bytes_max or FETCH_BYTES, wait_ms=wait_ms
        )
        self._store.locks.check(key, generation)
        return Fetched(fetched.batches, fetched.next_offset, fetched.end_offset)

    async def attach(self, snode: str, incarnation: str, freed: Callable[[Sequence[LockKey]], None]) -> None:
        """Be there for the enode for ever; its only snode needs no news of locks, it asks again by itself."""
        while True:
            self._store.locks.attached(incarnation)
            await self._clock.sleep(ATTACH_INTERVAL_S)

    async def watch_halves(self, producer_groups: Iterable[str], heard: Callable[[DueHalf], None]) -> None:
        """Hear of transactions that are due to be checked."""
        watcher = Watcher(producer_groups, lambda due: heard(DueHalf(_half(due.half), due.batch)))
        self._intake.transactions.watchers.add(watcher)
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            self._intake.transactions.watchers.remove(watcher)

    async def pop(self, wish: PopWish) -> Popped:
        """Lease messages; wait for the first one as the wish says."""
        await self._topics.arrival(wish.topic_id, max(wish.queue_ids, default=0))
        return await self._pops.pop(wish)

    async def settle(self, topic_id: int, group: str, parts: Sequence[LeasePart], verdict: Verdict) -> list[Stale]:
        """Say what becomes of leased messages."""
        await self._topics.arrival(topic_id)
        if isinstance(verdict, GiveBack) and verdict.rules.dead_letter_topic_id:
            await self._topics.arrival(verdict.rules.dead_letter_topic_id)
        return await self._pops.settle(topic_id, group, parts, verdict)


def _half(half: HalfOpen) -> OpenHalf:
    return OpenHalf(
        half.number,
        half.topic_id,
        half.queue_id,
        half.count,
        half.stored_at_ms,
        half.next_check_ms,
        half.checks,
        half.parked,
        half.producer_group,
    )
