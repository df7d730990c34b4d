"""Popped messages: each is leased to this consumer for a time, and acknowledged or nacked individually."""

import struct
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from ortoo.client.core.received import BatchOwner, MessageFields, ReceivedBatch
from ortoo.client.core.wire import queue_of
from ortoo.common.groups.pop import SETTLED_OFFSETS_MAX
from ortoo.common.grpc.bulk_calls import batch_of
from ortoo.v1 import pop_pb2

LEASES_PER_REQUEST_MAX = 256


class Settler(Protocol):
    """Acknowledges, nacks, releases and parks messages."""

    async def ack(self, lease: "PopLease", offsets: Iterable[int]) -> None:
        """Acknowledge messages as processed."""

    async def nack(
        self,
        lease: "PopLease",
        offsets: Iterable[int],
        *,
        delay_ms: float | None,
        count_attempt: bool,
        error: str,
        park: bool,
    ) -> None:
        """Nack, release or park messages."""


class PopLease:
    """Messages of one stored batch that a worker popped together."""

    def __init__(
        self, receipt_handle: str, batch: ReceivedBatch, attempts: Mapping[int, int], rows: range, popped_at_s: float
    ) -> None:
        """Lease the messages at `rows` of `batch`. `popped_at_s` is monotonic time. Made by `lease_of`."""
        self.receipt_handle = receipt_handle
        self.batch = batch
        self.attempts = attempts
        """Number of deliveries by offset, where it is more than 1."""
        self.popped_at_s = self.renewed_at_s = popped_at_s
        self.open_offsets = {batch.offset(row) for row in rows}
        """Offsets of messages without an outcome."""
        self._rows = rows

    def __len__(self) -> int:
        return len(self._rows)

    def split(self, count: int) -> "tuple[PopLease, PopLease]":
        """Split into the first `count` messages and the rest, for two workers."""
        return self._part(self._rows[:count]), self._part(self._rows[count:])

    def messages(self, settler: Settler) -> "list[PoppedMessage]":
        """The messages; `settler` acknowledges, nacks, releases or parks them."""
        return [PoppedMessage(self, row, settler) for row in self._rows]

    def _part(self, rows: range) -> "PopLease":
        part = PopLease(self.receipt_handle, self.batch, self.attempts, rows, self.popped_at_s)
        part.renewed_at_s = self.renewed_at_s
        return part


def lease_of(answer: pop_pb2.PoppedMessages, popped_at_s: float, owner: BatchOwner | None = None) -> PopLease:
    """Convert a lease from protobuf; `popped_at_s` is the monotonic time of its arrival."""
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
        owner=owner,
    )
    return PopLease(answer.receipt_handle, batch, attempts, range(len(offsets)), popped_at_s)


def take_messages(leases: deque[PopLease], count: int) -> list[PopLease]:
    """Take up to `count` messages from the front of `leases`."""
    selected: list[PopLease] = []
    while leases and count:
        first = leases.popleft()
        if len(first) > count:
            first, rest = first.split(count)
            leases.appendleft(rest)
        selected.append(first)
        count -= len(first)
    return selected


def by_enode(leases: Iterable[PopLease]) -> dict[str, list[PopLease]]:
    """Group leases by enode, without leases whose messages are all settled."""
    found: dict[str, list[PopLease]] = {}
    for lease in leases:
        if lease.open_offsets:
            found.setdefault(lease.batch.queue.enode, []).append(lease)
    return found


def request_chunks(leases: Sequence[PopLease]) -> list[Sequence[PopLease]]:
    """Split `leases` into requests, each within the limits of leases and of unsettled messages."""
    chunks: list[list[PopLease]] = []
    free_offsets = 0
    for lease in leases:
        count = len(lease.open_offsets)
        if not chunks or count > free_offsets or len(chunks[-1]) >= LEASES_PER_REQUEST_MAX:
            chunks.append([])
            free_offsets = SETTLED_OFFSETS_MAX
        chunks[-1].append(lease)
        free_offsets -= count
    return list(chunks)


class PoppedMessage(MessageFields):
    """One popped message. Unless it is acknowledged before its lease ends, it is delivered again.

    An open consumer renews leases.
    """

    __slots__ = ("_lease", "_settler")

    def __init__(self, lease: PopLease, index: int, settler: Settler) -> None:
        """The message at `index` of a lease."""
        super().__init__(lease.batch, index)
        self._lease = lease
        self._settler = settler

    @property
    def attempt(self) -> int:
        """Number of deliveries to the group, including this one."""
        return self._lease.attempts.get(self.offset, 1)

    @property
    def topic(self) -> str:
        """The original topic of the message, also for a message from the retry topic."""
        return self.origin_topic

    @property
    def lease(self) -> PopLease:
        """The lease with the messages that were popped together with it."""
        return self._lease

    async def ack(self) -> None:
        """Acknowledge the message as processed; the acknowledgement is durable when this call returns.

        Errors: Fenced when another consumer has got the message, or Unavailable.
        """
        await self._settler.ack(self._lease, (self.offset,))

    async def nack(self, delay_ms: float | None = None, *, count_attempt: bool = True, error: str = "") -> None:
        """Let the message be delivered again after `delay_ms`; None = the group's retry policy decides.

        After the last attempt the message is parked.

        With `count_attempt=False` the delivery does not count as an attempt. `error` is shown in the dead letter.
        Errors: as `ack`.
        """
        await self._settler.nack(
            self._lease, (self.offset,), delay_ms=delay_ms, count_attempt=count_attempt, error=error, park=False
        )

    async def park(self, error: str = "") -> None:
        """Move the message to the dead-letter topic now. Errors: as `ack`."""
        await self._settler.nack(self._lease, (self.offset,), delay_ms=0, count_attempt=True, error=error, park=True)
