"""One Produce stream: batches out, answers in, and a timeout for a silent snode."""

from collections.abc import Callable

import grpc

from ortoo.client.core.bidi_stream import BidiStream
from ortoo.client.core.wire import wire_queue
from ortoo.client.produce.producer_batch import ProducerBatch
from ortoo.common.errors import OrtooError, Unavailable
from ortoo.common.errors.status import error_of
from ortoo.common.grpc import bulk_calls
from ortoo.common.grpc.bulk_field import BulkMessage
from ortoo.common.process.clock import Clock
from ortoo.v1 import enode_pb2, producer_pb2

RESPONSE_TIMEOUT_S = 10.0
"""A snode that is due to answer and silent for this time counts as dead."""

OnResult = Callable[[ProducerBatch, OrtooError | None], None]


class ProduceCall:
    """A stream of batches to one snode. When it breaks, `run` ends, and batches without an answer stay in flight."""

    def __init__(self, channel: grpc.aio.Channel, peer: str, on_result: OnResult, *, clock: Clock) -> None:
        """`on_result` gets each answered batch and its error; the error None means that the batch is stored."""
        self.has_responded = False
        """Whether the snode has answered, so that a break does not count as a failure of that snode."""
        self._channel = channel
        self._peer = peer
        self._on_result = on_result
        self._clock = clock
        self._stream: BidiStream[BulkMessage, producer_pb2.ProduceResponse] = BidiStream(
            peer, self._on_response, self._check_timeout, clock=clock, heartbeat_interval_s=RESPONSE_TIMEOUT_S / 8
        )
        self._pending: dict[int, ProducerBatch] = {}
        self._last_id = 0
        self._last_response_s = clock.monotonic_s()

    def send(self, batch: ProducerBatch) -> None:
        """Send a batch that has its sequence, after all earlier batches."""
        if not self._pending:
            self._last_response_s = self._clock.monotonic_s()
        self._last_id += 1
        self._pending[self._last_id] = batch
        sealed = batch.sealed
        request = producer_pb2.ProduceRequest(
            request_id=self._last_id,
            queue=wire_queue(batch.queue),
            batch=bulk_calls.envelope_of(sealed),
            flush_mode=enode_pb2.FLUSH_MODE_UNSPECIFIED,
        )
        self._stream.send(BulkMessage(request, (sealed.records,)))

    async def run(self) -> OrtooError:
        """Run until the stream breaks; returns the reason."""
        try:
            await self._stream.run(bulk_calls.produce(self._channel))
        except OrtooError as error:
            return error
        return Unavailable(f"{self._peer} ended the stream")

    def _on_response(self, answer: producer_pb2.ProduceResponse) -> bool:
        self.has_responded = True
        self._last_response_s = self._clock.monotonic_s()
        batch = self._pending.pop(answer.request_id, None)
        if batch is not None and answer.HasField("failure"):
            self._on_result(batch, error_of(answer.failure))
        elif batch is not None:
            batch.first_offset, batch.stored_at_ms = answer.first_offset, answer.stored_at_ms
            batch.recall_seal = answer.recall_seal
            self._on_result(batch, None)
        return False

    def _check_timeout(self) -> None:
        if self._pending and self._clock.monotonic_s() - self._last_response_s > RESPONSE_TIMEOUT_S:
            raise Unavailable(f"{self._peer} has not answered for {RESPONSE_TIMEOUT_S:.0f} s")
