"""The memory of calls, drawn from the process's budget: each call, its headers and request, and its unread answers.

The transport keeps an answer until the peer's window has space for it, also after the handler has ended, because the
status follows the answers. If the peer reads nothing, only closing the connection frees the answers. The connection is
closed when the memory is used up and ending the call did not help.
"""

import asyncio
from collections.abc import Callable
from contextvars import ContextVar
from functools import partial
from typing import Any

from ortoo.common.errors import Invalid, Overloaded
from ortoo.common.grpc.layers.arrival import Arrival, arrival_of
from ortoo.common.grpc.layers.layer import Layer, Method, ServedCall
from ortoo.common.grpc.layers.waiting_calls import WaitingCalls
from ortoo.common.grpc.limits.connections import Peer, end_connections, peer_of
from ortoo.common.logs import log_events
from ortoo.common.logs.logger import get_logger
from ortoo.common.logs.rate_limit import LogRateLimit
from ortoo.common.process.memory_budget import MemoryBudget, MemoryShare

CALL_BYTES = 16 << 10
"""The approximate memory of an open call: its tasks, its stream, its metadata."""
REQUEST_COPIES = 6
"""Maximum number of copies of a request: as received, decoded, as messages, as their batch, and two while sent."""
CALL_PERCENT_MAX = 60
"""Maximum percentage of the budget that one request counts as. Without this limit, the sender of the largest request
would retry for ever."""
TRANSPORT_COPIES = 2
"""The number of copies of an answer while it is written: its bytes and the transport's copy of them."""
HEADER_BYTES_MAX = 16 << 10
"""Maximum size of the headers of one call. The transport refuses longer headers, but only after the peer has
acknowledged the limit. After that, an honest peer sends no longer headers."""
HEADER_BYTES_USUAL, REQUEST_BYTES_USUAL = 2 << 10, 1 << 10
"""Headers and requests of at most this size are part of CALL_BYTES."""
HEADER_COPIES = 3
"""The number of copies of longer headers: gRPC's bytes, Python's texts, and the result of reading these texts."""
SMALL_BYTES = 2 << 10
"""Answers of at most this size are part of CALL_BYTES."""
_share: ContextVar[MemoryShare | None] = ContextVar("call_memory", default=None)
_log = get_logger("memory")


def current_memory_share() -> MemoryShare | None:
    """The memory share of the current call; None outside of calls."""
    return _share.get()


def open_call_share(budget: MemoryBudget, kind: str) -> MemoryShare:
    """The memory share of the current call. Outside of calls, a new share of `kind`, which the caller must close."""
    return current_memory_share() or budget.share(kind)


class CallMemory(Layer):
    """Gives each call a memory share when its request arrives, and closes it when gRPC has released all answers.

    Calls whose requests have not arrived have a memory of their own, so that they take none from the budget.
    """

    always_repeats = True

    def __init__(self, budget: MemoryBudget) -> None:
        """Draw from `budget`."""
        self._budget = budget
        self.waiting = WaitingCalls(budget.bytes_max, lambda peer: self._end_connection("requests", peer, None))
        self._ending: dict[Peer | None, tuple[str, list[asyncio.Task[Any] | None]]] = {}
        """The calls whose connections are to be closed now, and the reasons."""
        self.ended = {"unread": 0, "headers": 0, "requests": 0}
        """The number of closed connections whose peers did not read, sent too long headers, or sent no requests."""
        self._log_rate = LogRateLimit()
        self._polls: dict[str, tuple[MemoryShare, Callable[[str], None]]] = {}
        """By the path of a method: the memory of its calls that wait without being made, and the end of each."""

    def arrive(self, arrival: Arrival) -> None:
        """Count the memory of a call without its request, if necessary after ending older calls of this kind.

        A call that has its request waits for none. Its memory is drawn from the budget at once.

        Errors: Overloaded, and Invalid for too many bytes of headers.
        """
        header_bytes = 0
        for _, value in arrival.metadata:
            header_bytes += len(value)
        arrival.call_bytes = CALL_BYTES
        if header_bytes > HEADER_BYTES_USUAL:
            if header_bytes > HEADER_BYTES_MAX:
                arrival.ends_connection = True
                raise Invalid(
                    f"the headers have {header_bytes} bytes; send at most {HEADER_BYTES_MAX}", field="headers"
                )
            arrival.call_bytes += HEADER_COPIES * header_bytes
        if arrival.has_request:
            arrival.memory = self._share_of(arrival)
            return
        if not arrival.is_observer:  # health checks must be answered
            self._budget.wait_for_room(arrival.kind, arrival.call_bytes, is_request=not arrival.gives_many)
        arrival.open_share = partial(self._budget.share, arrival.kind)
        self.waiting.add(arrival, arrival.call_bytes)
        arrival.release_callbacks.append(lambda: self.waiting.remove(arrival))

    def on_poll(self, method: Method) -> Callable[[str], None]:
        """Count a call that waits like one that was made. Errors: Overloaded."""
        if (known := self._polls.get(method.path)) is None:
            share = self._budget.share(method.path.rpartition("/")[2])
            known = self._polls[method.path] = share, lambda _: share.release_fixed(CALL_BYTES)
        share, end = known
        share.draw_fixed(CALL_BYTES, is_request=not method.is_response_stream)
        return end

    def enter(self, call: ServedCall) -> None:
        """Draw the memory of the call. Errors: Overloaded, and for a refused call the error of `arrive`."""
        context = call.context
        arrival = arrival_of(context)
        if arrival is None:
            return
        if arrival.ends_connection:
            self._end_connection("headers", context.peer(), asyncio.current_task())
        if arrival.refused is not None:
            arrival.raise_refusal()
        if arrival.end is not None:
            arrival.on_request_received()
        if arrival.memory is None:
            self.waiting.remove(arrival)
            arrival.memory = self._share_of(arrival)
        share, call.kept[self] = arrival.memory, arrival
        if call.data is not None and len(call.data) > REQUEST_BYTES_USUAL:
            self.count_request(call, len(call.data))
        task = None if arrival.has_request else asyncio.current_task()
        share.on_unresponsive = lambda: self._end_connection("unread", context.peer(), task)
        _share.set(share)

    def _share_of(self, arrival: Arrival) -> MemoryShare:
        """A share with the memory of a call without its request. Errors: Overloaded."""
        if not arrival.is_observer:
            return self._budget.fixed_share(arrival.kind, arrival.call_bytes, is_request=not arrival.gives_many)
        share = self._budget.share(arrival.kind)
        self._draw(arrival, share, arrival.call_bytes)
        return share

    def count_request(self, call: ServedCall, request_bytes: int) -> None:
        """Count the memory of a request of this size. Errors: Overloaded."""
        arrival: Arrival | None = call.kept.get(self)
        if arrival is None or arrival.memory is None:
            return
        counted_bytes = min(REQUEST_COPIES * request_bytes, self._budget.bytes_max * CALL_PERCENT_MAX // 100)
        self._draw(arrival, arrival.memory, counted_bytes)
        arrival.request_bytes += counted_bytes

    @staticmethod
    def _draw(arrival: Arrival, share: MemoryShare, size_bytes: int) -> None:
        if arrival.is_observer:
            share.draw_unchecked(size_bytes)
            share.settle()
            return
        try:
            share.draw_fixed(size_bytes, is_request=not arrival.gives_many)
        except Overloaded:
            share.close()
            raise

    def leave(self, call: ServedCall) -> None:
        """Return the memory of the request, which no layer needs any more. gRPC still keeps the call."""
        arrival: Arrival | None = call.kept.get(self)
        if arrival is not None and arrival.memory is not None:
            arrival.memory.release_fixed(arrival.request_bytes)
            arrival.request_bytes = 0

    def on_response(self, call: ServedCall, answer: bytes) -> bytes:
        """Count the memory of an answer: in a stream until `on_sent`, otherwise until gRPC has released the call."""
        if len(answer) > SMALL_BYTES and self in call.kept:
            call.kept[self].memory.draw_unchecked(TRANSPORT_COPIES * len(answer))
        return answer

    def on_sent(self, call: ServedCall, answer: bytes) -> None:
        """Stop counting an answer of a stream, because gRPC has taken it."""
        if (arrival := call.kept.get(self)) is not None:
            if len(answer) > SMALL_BYTES:
                arrival.memory.release(TRANSPORT_COPIES * len(answer))
            arrival.memory.on_progress()

    def _end_connection(self, reason: str, peer: str, task: "asyncio.Task[Any] | None") -> None:
        """Close the connection of a call in the next iteration of the event loop, together with other connections."""
        if not self._ending:
            asyncio.get_running_loop().call_soon(self._end_connections)
        self._ending.setdefault(peer_of(peer), (reason, []))[1].append(task)

    def _end_connections(self) -> None:
        ending, self._ending = self._ending, {}
        ended = end_connections(ending.keys())
        total = sum(self.ended.values())
        for peer, (reason, tasks) in ending.items():
            if peer in ended:
                self.ended[reason] += 1
                continue
            for task in tasks:  # not a socket connection
                if task is not None:
                    task.cancel()
        if sum(self.ended.values()) > total:
            self._report()

    def _report(self) -> None:
        """Log closed connections at intervals, so that peers that reconnect cannot fill the log."""
        if self._log_rate.acquire("closed", self._budget.now_s()):
            _log.emit(log_events.CONNECTIONS_CLOSED, **self.ended)
