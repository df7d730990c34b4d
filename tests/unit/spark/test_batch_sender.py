"""The sender of Spark's batches: the order of sends, and the end after a refusal."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from ortoo.client import Conflict, OrtooError, Queue
from ortoo.client.produce.producer_batch import ProducerBatch
from ortoo.common.process.clock import SystemClock
from ortoo.common.records.sealed_batch import SealedBatch
from ortoo.spark.writing import batch_sender
from ortoo.spark.writing.batch_sender import IN_FLIGHT_MAX, BatchSender
from ortoo.spark.writing.lanes import AddressedBatch

QUEUE = Queue("enode-0", "t", 0)


class ScriptedCall:
    """A stream whose answers the test gives."""

    has_responded = True
    opened: "asyncio.Queue[ScriptedCall]"

    def __init__(
        self, channel: Any, address: str, on_result: Callable[[ProducerBatch, OrtooError | None], None], *, clock: Any
    ) -> None:
        """Hand the call to the test."""
        self.sent: list[ProducerBatch] = []
        self.on_result = on_result
        ScriptedCall.opened.put_nowait(self)

    def send(self, batch: ProducerBatch) -> None:
        """Note the batch."""
        self.sent.append(batch)

    async def run(self) -> str:
        """Stay open."""
        await asyncio.Event().wait()
        return ""


class OneSnode:
    """A connection with one address."""

    clock = SystemClock()

    def channel(self) -> None:
        """No channel: the call needs none."""

    async def run_with_failover(self, use: Callable[[str], Awaitable[object]]) -> None:
        """Use the address once."""
        await use("snode")


def batches(count: int) -> list[AddressedBatch]:
    """Batches of one message of one producer."""
    return [AddressedBatch(QUEUE, 1, SealedBatch(b"x", 0, 1, 1, 7, number)) for number in range(count)]


async def test_nothing_is_sent_after_a_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    """An earlier attempt stored eight batches, and other rows than these from the fourth one on.

    The ninth batch is the one that the enode expects, so it would be stored.
    """
    monkeypatch.setattr(batch_sender, "ProduceCall", ScriptedCall)
    ScriptedCall.opened = asyncio.Queue()
    connection: Any = OneSnode()
    async with BatchSender(connection, in_flight_bytes=1 << 20, timeout_ms=60_000) as sender:
        await sender.put(batches(10))
        call = await ScriptedCall.opened.get()
        assert len(call.sent) == IN_FLIGHT_MAX
        for number in range(3):
            long_ago = Conflict(f"sequence {number} was stored long ago", field="batch.first_sequence")
            call.on_result(call.sent[number], long_ago)
        assert len(call.sent) == 8
        for number in range(3, 8):
            used = Conflict(f"sequence {number} was used for other bytes", field="batch.first_sequence")
            call.on_result(call.sent[number], used)
        assert len(call.sent) == 8
        with pytest.raises(Conflict, match="sequence 3 was used for other bytes"):
            await sender.flush()
