"""One Produce stream: batches out, answers in, and a timeout for a silent snode."""

from collections.abc import Callable

import grpc

from ortoo.client.core.bidi_stream import Conversation
from ortoo.client.core.wire import wire_queue
from ortoo.client.produce.producer_batch import ProducerBatch
from ortoo.common.errors import OrtooError, Unavailable
from ortoo.common.errors.status import error_of
from ortoo.common.grpc import bulk_calls
from ortoo.common.grpc.bulk_field import Bulky
from ortoo.common.process.clock import Clock
from ortoo.v1 import enode_pb2, producer_pb2

SILENCE_S = 10.0
"""A snode that is due to answer and silent for this time counts as dead."""

Answered = Callable[[ProducerBatch, OrtooError | None], None]


class ProduceCall:
    """A stream with one snode. `run` ends when it breaks; batches without an answer then stay in flight."""

    def __init__(self, channel: grpc.aio.Channel, peer: str, answered: Answered, *, clock: Clock) -> None:
        """`answered` gets each batch with its error, or None when it was stored."""
        self.has_heard = False
        """Whether the snode has answered, so that a break does not count as a failure of that snode."""
        self._channel = channel
        self._peer = peer
        self._answered = answered
        self._clock = clock
        self._conversation: Conversation[Bulky, producer_pb2.ProduceResponse] = Conversation(
            peer, self._hear, self._check_silence, clock=clock, heartbeat_s=SILENCE_S / 8
        )
        self._waiting: dict[int, ProducerBatch] = {}
        self._last_id = 0
        self._heard_s = clock.monotonic_s()

    def send(self, batch: ProducerBatch) -> None:
        """Send a numbered batch after those before it."""
        if not self._waiting:
            self._heard_s = self._clock.monotonic_s()
        self._last_id += 1
        self._waiting[self._last_id] = batch
        sealed = batch.sealed
        request = producer_pb2.ProduceRequest(
            request_id=self._last_id,
            queue=wire_queue(batch.queue),
            batch=bulk_calls.envelope_to(sealed),
            flush_mode=enode_pb2.FLUSH_MODE_UNSPECIFIED,
        )
        self._conversation.say(Bulky(request, (sealed.records,)))

    async def run(self) -> OrtooError:
        """Run until the stream breaks; returns the reason."""
        try:
            await self._conversation.run(bulk_calls.produce(self._channel))
        except OrtooError as error:
            return error
        return Unavailable(f"{self._peer} ended the stream")

    def _hear(self, answer: producer_pb2.ProduceResponse) -> bool:
        self.has_heard = True
        self._heard_s = self._clock.monotonic_s()
        batch = self._waiting.pop(answer.request_id, None)
        if batch is not None and answer.HasField("failure"):
            self._answered(batch, error_of(answer.failure))
        elif batch is not None:
            batch.first_offset, batch.stored_at_ms = answer.first_offset, answer.stored_at_ms
            batch.recall_seal = answer.recall_seal
            self._answered(batch, None)
        return False

    def _check_silence(self) -> None:
        if self._waiting and self._clock.monotonic_s() - self._heard_s > SILENCE_S:
            raise Unavailable(f"{self._peer} has not answered for {SILENCE_S:.0f} s")
