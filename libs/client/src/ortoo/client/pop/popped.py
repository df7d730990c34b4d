"""Messages that were popped: each is this consumer's until a time, and is settled by itself."""

import struct
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from ortoo.client.core.received import MessageFields, ReceivedBatch
from ortoo.client.core.wire import queue_of
from ortoo.common.grpc.bulk_calls import batch_of
from ortoo.v1 import pop_pb2

LEASES_AT_ONCE = 256


class Settler(Protocol):
    """Who carries out what becomes of messages."""

    async def ack(self, lease: "PopLease", offsets: Iterable[int]) -> None:
        """They are processed."""

    async def give_back(
        self,
        lease: "PopLease",
        offsets: Iterable[int],
        *,
        delay_ms: float | None,
        counts: bool,
        error: str,
        park: bool,
    ) -> None:
        """They shall come again, or be parked."""


class PopLease:
    """Messages of one stored batch that a worker popped together."""

    def __init__(
        self, receipt_handle: str, batch: ReceivedBatch, attempts: Mapping[int, int], rows: range, popped_at_s: float
    ) -> None:
        """The messages at `rows` of `batch`, popped at a monotonic time; `lease_of` is the way in."""
        self.receipt_handle = receipt_handle
        self.batch = batch
        self.attempts = attempts
        """Offset to how often a message was delivered, where that is more than once."""
        self.popped_at_s = self.renewed_at_s = popped_at_s
        self.open_offsets = {batch.offset(row) for row in rows}
        """Of messages that are not settled."""
        self._rows = rows

    def __len__(self) -> int:
        return len(self._rows)

    def split(self, count: int) -> "tuple[PopLease, PopLease]":
        """The first `count` messages, and the rest, for two workers: each settles its own."""
        return self._part(self._rows[:count]), self._part(self._rows[count:])

    def messages(self, settler: Settler) -> "list[PoppedMessage]":
        """The messages, to be settled by `settler`."""
        return [PoppedMessage(self, row, settler) for row in self._rows]

    def _part(self, rows: range) -> "PopLease":
        part = PopLease(self.receipt_handle, self.batch, self.attempts, rows, self.popped_at_s)
        part.renewed_at_s = self.renewed_at_s
        return part


def lease_of(answer: pop_pb2.PoppedMessages, popped_at_s: float) -> PopLease:
    """Read an answer that came at a monotonic time."""
    offsets = list(answer.offsets)
    first = offsets[0]
    attempts = dict(zip(offsets, answer.attempts, strict=True)) if answer.attempts else {}
    batch = ReceivedBatch(
        queue_of(answer.queue),
        batch_of(answer.batch),
        topic_id=answer.topic_id,
        first_offset=first,
        next_offset=offsets[-1] + 1,
        stored_at_ms=answer.stored_at_ms,
        rows=struct.pack(f"<{len(offsets)}i", *(offset - first for offset in offsets)),
    )
    return PopLease(answer.receipt_handle, batch, attempts, range(len(offsets)), popped_at_s)


def share(leases: deque[PopLease], count: int) -> list[PopLease]:
    """Take up to `count` messages off the front."""
    taken: list[PopLease] = []
    while leases and count:
        first = leases.popleft()
        if len(first) > count:
            first, rest = first.split(count)
            leases.appendleft(rest)
        taken.append(first)
        count -= len(first)
    return taken


def by_enode(leases: Iterable[PopLease]) -> dict[str, list[PopLease]]:
    """Those with messages that are not settled, by where they lie."""
    found: dict[str, list[PopLease]] = {}
    for lease in leases:
        if lease.open_offsets:
            found.setdefault(lease.batch.queue.enode, []).append(lease)
    return found


def parts(leases: Sequence[PopLease]) -> list[Sequence[PopLease]]:
    """As many at a time as one request is for."""
    return [leases[start : start + LEASES_AT_ONCE] for start in range(0, len(leases), LEASES_AT_ONCE)]


class PoppedMessage(MessageFields):
    """One message; it comes again unless it is acknowledged in time. While its consumer is open, time is renewed."""

    __slots__ = ("_lease", "_settler")

    def __init__(self, lease: PopLease, index: int, settler: Settler) -> None:
        """The message at `index` of a lease."""
        super().__init__(lease.batch, index)
        self._lease = lease
        self._settler = settler

    @property
    def attempt(self) -> int:
        """How often it was delivered to the group, this time included."""
        return self._lease.attempts.get(self.offset, 1)

    @property
    def topic(self) -> str:
        """Its topic; of a message that was sent again to the group, the first one."""
        return self.origin_topic

    @property
    def lease(self) -> PopLease:
        """The messages that were popped together with it."""
        return self._lease

    async def ack(self) -> None:
        """It is processed and never comes again; that is durable when this returns.

        Errors: Fenced when another consumer has it meanwhile; Unavailable.
        """
        await self._settler.ack(self._lease, (self.offset,))

    async def give_back(self, delay_ms: float | None = None, *, counts: bool = True, error: str = "") -> None:
        """It shall come again after `delay_ms`; None = by the group's back-off. After the last attempt it is parked.

        Unless it `counts`, the delivery is no attempt. `error` is for whoever looks at the dead letter.
        Errors: as `ack`.
        """
        await self._settler.give_back(
            self._lease, (self.offset,), delay_ms=delay_ms, counts=counts, error=error, park=False
        )

    async def park(self, error: str = "") -> None:
        """Put it into the dead-letter topic now. Errors: as `ack`."""
        await self._settler.give_back(self._lease, (self.offset,), delay_ms=0, counts=True, error=error, park=True)
