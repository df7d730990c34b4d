"""One Produce stream: batches out, answers in, and a prompt end when the snode falls silent."""

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable

import grpc

from ortoo.client.core.wire import wire_queue
from ortoo.client.produce.producer_batch import Parcel
from ortoo.common.errors import OrtooError, Unavailable
from ortoo.common.errors.status import error_of, error_of_rpc
from ortoo.common.grpc import bulk_calls
from ortoo.common.grpc.bulk_field import Bulky
from ortoo.common.process.background import Background
from ortoo.common.process.clock import Clock
from ortoo.v1 import enode_pb2, producer_pb2, record_pb2

SILENCE_S = 10.0
"""A snode that owes an answer for so long is taken for dead."""

Answered = Callable[[Parcel, OrtooError | None], None]


class ProduceCall:
    """A conversation with one snode. `run` ends when it breaks; parcels without an answer are then under way still."""

    def __init__(self, channel: grpc.aio.Channel, peer: str, answered: Answered, *, clock: Clock) -> None:
        """`answered` gets each parcel with the error it was refused with, or None when it was stored."""
        self._channel = channel
        self._peer = peer
        self._answered = answered
        self._clock = clock
        self._unsent: deque[Parcel] = deque()
        self._wake = asyncio.Event()
        self._waiting: dict[int, Parcel] = {}
        self.has_heard = False
        """Whether the snode has answered anything: then it works, and a break is no sign of one that does not."""
        self._last_id = 0
        self._heard_s = clock.monotonic_s()

    def send(self, parcel: Parcel) -> None:
        """Send a numbered parcel after those before it."""
        self._unsent.append(parcel)
        self._wake.set()

    async def run(self) -> OrtooError:
        """Converse until the stream breaks; return why it did."""
        call = bulk_calls.produce(self._channel)
        broken: asyncio.Future[OrtooError] = asyncio.get_running_loop().create_future()

        async def until_broken(part: Callable[[], "asyncio.Future[None]"]) -> None:
            error: OrtooError = Unavailable(f"{self._peer} ended the stream")
            try:
                await part()
            except grpc.aio.AioRpcError as failure:
                error = error_of_rpc(failure, self._peer)
            except OrtooError as silence:
                error = silence
            if not broken.done():
                broken.set_result(error)

        async def write() -> None:
            # Once the stream is over nothing can be written; what the snode said before that is still to be read.
            with contextlib.suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
                while True:
                    while self._unsent:
                        await call.write(self._request(self._unsent.popleft()))
                    self._wake.clear()
                    await self._wake.wait()

        async def read() -> None:
            async for answer in call:
                self._hear(answer)

        try:
            async with Background("produce") as background:
                background.spawn("write", write())
                for part in (read, self._watch_silence):
                    background.spawn(part.__name__, until_broken(part))  # type: ignore[arg-type]
                return await broken
        finally:
            call.cancel()

    def _request(self, parcel: Parcel) -> Bulky:
        if not self._waiting:
            self._heard_s = self._clock.monotonic_s()
        self._last_id += 1
        self._waiting[self._last_id] = parcel
        queue, batch = parcel.queue, parcel.batch
        request = producer_pb2.ProduceRequest(
            request_id=self._last_id,
            queue=wire_queue(queue),
            batch=record_pb2.SealedBatch(
                records_crc32c=batch.records_crc32c,
                count=batch.count,
                body_inflated_bytes=batch.body_inflated_bytes,
                producer_id=batch.producer_id,
                first_sequence=batch.first_sequence,
                delayed=batch.delayed,
            ),
            flush_mode=enode_pb2.FLUSH_MODE_UNSPECIFIED,
        )
        return Bulky(request, (batch.records,))

    def _hear(self, answer: producer_pb2.ProduceResponse) -> None:
        self.has_heard = True
        self._heard_s = self._clock.monotonic_s()
        parcel = self._waiting.pop(answer.request_id, None)
        if parcel is None:
            return
        if answer.HasField("failure"):
            self._answered(parcel, error_of(answer.failure))
            return
        parcel.first_offset, parcel.stored_at_ms = answer.first_offset, answer.stored_at_ms
        self._answered(parcel, None)

    async def _watch_silence(self) -> None:
        while True:
            await self._clock.sleep(SILENCE_S / 8)
            if self._waiting and self._clock.monotonic_s() - self._heard_s > SILENCE_S:
                raise Unavailable(f"{self._peer} has not answered for {SILENCE_S:.0f} s")
