"""Holds appends that a replica refused because another replica leads, and sends them to the leader in order."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Generic

from ortoo.common.errors import NotLeader, OrtooError, Overloaded
from ortoo.common.process.clock import Clock
from ortoo.common.process.containment import as_ortoo_error
from ortoo.snode.enodes.request_stream import PendingRequest, Request, RequestStream, Result, retrieve_exception

RETRY_DELAY_MIN_S, RETRY_DELAY_MAX_S = 0.02, 0.1
"""Waits before a replica is asked again whether it leads now."""


@dataclass(slots=True, eq=False)
class HeldAppends(Generic[Request, Result]):
    """The appends that wait for an enode's next leader.

    Later appends wait behind them, so that each queue keeps its order. Appends that were in flight to the former leader
    are sent first, in their original order. Sending begins when the former leader has answered all its appends.
    """

    current_stream: Callable[[], RequestStream[Request, Any, Result]]
    """Returns the stream to the current leader, as far as this snode knows."""
    clock: Clock
    timeout_s: float
    bytes_max: int
    _held: list[tuple[int, int, PendingRequest[Request, Result]]] = field(default_factory=list, init=False)
    _new_count: int = field(default=0, init=False)
    _bytes: int = field(default=0, init=False)
    _error: NotLeader = field(default_factory=NotLeader, init=False)
    _source: RequestStream[Request, Any, Result] | None = field(default=None, init=False)
    _wake: asyncio.Event = field(default_factory=asyncio.Event, init=False)

    @property
    def is_holding(self) -> bool:
        """Whether appends are held, so that later appends must wait as well."""
        return bool(self._held)

    def add(self, request: Request, size_bytes: int) -> asyncio.Future[Result]:
        """Hold a new append behind the held appends. Errors: Overloaded."""
        if self._bytes + size_bytes > self.bytes_max:
            raise Overloaded(
                f"{self._bytes} bytes wait for an enode's next leader, the limit is {self.bytes_max}; retry",
                retry_after_ms=50,
            )
        future: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        future.add_done_callback(retrieve_exception)
        self._new_count += 1
        self._append(
            1, self._new_count, PendingRequest(request, future, size_bytes, self.clock.monotonic_s() + self.timeout_s)
        )
        return future

    def add_moved(
        self, source: RequestStream[Request, Any, Result], item: PendingRequest[Request, Result], error: NotLeader
    ) -> None:
        """Hold an append that the stream `source` did not store, because its replica does not lead."""
        self._source, self._error = source, error
        self._append(0, item.request.request_id, item)

    def fail_all(self, error: OrtooError) -> None:
        """Fail all held appends."""
        for _, _, item in self._take_all():
            if not item.future.done():
                item.future.set_exception(error)

    async def run(self) -> None:
        """Send the held appends whenever a leader is known; never returns."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            try:
                await self._resend()
            except Exception as failure:
                self.fail_all(as_ortoo_error(failure, "enode link"))

    async def _resend(self) -> None:
        while self._held:
            source = self._source
            assert source is not None
            if self.current_stream() is source or not source.is_idle:
                await self.clock.sleep(RETRY_DELAY_MIN_S)
                self._fail_expired()
                # A replica that voted for another epoch can lead only in a later one, which then becomes known.
                if not source.is_idle or (self._error.epoch and self.current_stream() is source):
                    continue
            link = self.current_stream()
            for _, _, item in self._take_all():
                link.enqueue(item)

    def _take_all(self) -> list[tuple[int, int, PendingRequest[Request, Result]]]:
        taken, self._held = sorted(self._held, key=lambda one: one[:2]), []
        self._bytes = 0
        return [one for one in taken if not one[2].future.done()]

    def _append(self, sort: int, number: int, item: PendingRequest[Request, Result]) -> None:
        self._held.append((sort, number, item))
        self._bytes += item.size_bytes
        self._wake.set()

    def _fail_expired(self) -> None:
        now_s = self.clock.monotonic_s()
        late = [one for one in self._held if one[2].deadline_s <= now_s]
        if not late:
            return
        self._held = [one for one in self._held if one[2].deadline_s > now_s]
        self._bytes = sum(one[2].size_bytes for one in self._held)
        for _, _, item in late:
            if not item.future.done():
                item.future.set_exception(self._error)
