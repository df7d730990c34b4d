"""Sends addressed batches and waits until all are stored.

Batches have their producer ids and sequences from the start, so that retries are safe. The batches of a queue are sent
in order, a few at a time. After a failure all unanswered batches are sent again, in order, until the timeout.
"""

import asyncio
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Self

from ortoo.client import Conflict, OrtooError, Queue, Unavailable
from ortoo.client.core.connection import Connection
from ortoo.client.produce.produce_call import ProduceCall
from ortoo.client.produce.producer_batch import ProducerBatch
from ortoo.common.process.background import Background
from ortoo.spark.writing.lanes import AddressedBatch

IN_FLIGHT_MAX = 5
"""Largest number of batches of a producer and queue in flight, equal to the number that the enode remembers."""
_SEQUENCE = "batch.first_sequence"
_LONG_AGO = "stored long ago"


@dataclass(slots=True)
class _QueueLane:
    """One producer's batches for one queue."""

    ready: deque[ProducerBatch] = field(default_factory=deque)
    in_flight: deque[ProducerBatch] = field(default_factory=deque)
    to_retry: list[ProducerBatch] = field(default_factory=list)
    newest: tuple[int, bool] = (-1, False)
    """The largest sequence that is stored, and whether an earlier attempt stored it long before its own last batch."""

    @property
    def is_idle(self) -> bool:
        return not (self.ready or self.in_flight or self.to_retry)


class BatchSender:
    """Sends batches; an async context manager. Its exit does not wait for answers, so call `flush` before the exit."""

    def __init__(self, connection: Connection, *, in_flight_bytes: int, timeout_ms: int) -> None:
        """`in_flight_bytes` is the approximate limit of unanswered bytes.

        Sends fail after `timeout_ms` without progress.
        """
        self._connection = connection
        self._bytes_max = in_flight_bytes
        self._timeout_s = timeout_ms / 1000
        self._background = Background("spark sink")
        self._lines: dict[tuple[Queue, int], _QueueLane] = {}
        self._call: ProduceCall | None = None
        self._bytes = 0
        self._changed = asyncio.Event()
        self._has_batches = asyncio.Event()
        self._error: OrtooError | None = None
        self._last_error = ""
        self._progress_s = connection.clock.monotonic_s()
        self._stored_messages = 0

    async def __aenter__(self) -> Self:
        await self._background.__aenter__()
        self._background.spawn("conversation", self._run_stream())
        self._background.spawn("deadline", self._watch_timeout())
        return self

    async def __aexit__(self, *ended: Any) -> None:
        await self._background.__aexit__(*ended)

    async def put(self, batches: Iterable[AddressedBatch]) -> None:
        """Send batches; waits while too many bytes are unanswered. Errors: the error of an earlier batch."""
        for addressed in batches:
            while self._bytes > self._bytes_max and self._error is None:
                await self._wait_change()
            if self._error is not None:
                raise self._error
            self._put(addressed)

    def _put(self, addressed: AddressedBatch) -> None:
        if not self._bytes:
            self._progress_s = self._connection.clock.monotonic_s()
        batch = ProducerBatch(addressed.queue, addressed.topic_id, asyncio.get_running_loop().create_future(), 0.0)
        batch.seal(addressed.batch)
        self._bytes += len(addressed.batch.records)
        line = self._lines.setdefault((addressed.queue, addressed.batch.producer_id), _QueueLane())
        line.ready.append(batch)
        self._has_batches.set()
        self._send_ready(line)

    async def flush(self) -> int:
        """Wait until all batches are stored; returns the number of stored messages.

        Errors: the error of a refused batch, Conflict if an earlier attempt stored more rows, or Unavailable after the
        timeout.
        """
        while self._error is None and not all(line.is_idle for line in self._lines.values()):
            await self._wait_change()
        if self._error is not None:
            raise self._error
        for (queue, _), line in self._lines.items():
            if line.newest[1]:
                raise Conflict(
                    f"an earlier attempt stored more rows in queue {queue.queue_id} of {queue.topic} on {queue.enode}",
                    field=_SEQUENCE,
                )
        return self._stored_messages

    async def _wait_change(self) -> None:
        self._changed.clear()
        await self._changed.wait()

    def _send_ready(self, line: _QueueLane) -> None:
        """Send as many batches as may be in flight, and none after a refusal: the enode may expect a later one."""
        while self._call is not None and self._error is None and line.ready and not line.to_retry:
            if len(line.in_flight) >= IN_FLIGHT_MAX:
                return
            batch = line.ready.popleft()
            line.in_flight.append(batch)
            self._call.send(batch)

    def _on_result(self, batch: ProducerBatch, error: OrtooError | None) -> None:
        line = self._lines[batch.queue, batch.sealed.producer_id]
        line.in_flight.remove(batch)
        if error is None or _is_already_stored(error):
            self._progress_s = self._connection.clock.monotonic_s()
            self._bytes -= len(batch.sealed.records)
            self._stored_messages += batch.sealed.count
            line.newest = max(line.newest, (batch.sealed.first_sequence, error is not None))
        elif error.retriable:
            self._last_error = str(error)
            line.to_retry.append(batch)
        else:
            self._error = self._error or error
        if line.to_retry and not line.in_flight:
            delay_s = max(error.retry_after_ms / 1000, 0.05) if error is not None else 0.0
            asyncio.get_running_loop().call_later(delay_s, self._retry, line)
        self._send_ready(line)
        self._changed.set()

    def _retry(self, line: _QueueLane) -> None:
        if line.to_retry and not line.in_flight:
            line.to_retry.sort(key=lambda batch: batch.sealed.first_sequence)
            line.ready.extendleft(reversed(line.to_retry))
            line.to_retry = []
            self._send_ready(line)

    async def _run_stream(self) -> None:
        """Keep a stream open after the first batch; after a break, unanswered batches are sent again."""
        await self._has_batches.wait()
        await self._connection.run_with_failover(self._stream_to)

    async def _stream_to(self, address: str) -> bool:
        """Send over one stream until it breaks; returns whether its snode has answered."""
        connection = self._connection
        call = self._call = ProduceCall(connection.channel(), address, self._on_result, clock=connection.clock)
        for line in self._lines.values():
            self._send_ready(line)
        self._last_error = str(await call.run())
        self._call = None
        for line in self._lines.values():
            line.to_retry += line.in_flight
            line.in_flight.clear()
            self._retry(line)
        return call.has_responded

    async def _watch_timeout(self) -> None:
        clock = self._connection.clock
        while True:
            await clock.sleep(min(self._timeout_s / 4, 1.0))
            if self._bytes and clock.monotonic_s() - self._progress_s > self._timeout_s:
                self._error = self._error or Unavailable(
                    f"nothing was stored for {self._timeout_s:.0f} s ({self._last_error or 'no answer'}); "
                    "the option deliveryTimeoutMs sets this limit"
                )
                self._changed.set()


def _is_already_stored(error: OrtooError) -> bool:
    """Whether the enode reports that the batch was stored before, at an offset that the enode no longer remembers."""
    return isinstance(error, Conflict) and error.field == _SEQUENCE and _LONG_AGO in error.message
