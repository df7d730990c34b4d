"""The layers that decode requests and encode answers. Outer layers see bytes, and inner layers see messages."""

from collections.abc import Awaitable
from typing import Any

from ortoo.common.grpc.layers.call_memory import CallMemory
from ortoo.common.grpc.layers.layer import Layer, ServedCall
from ortoo.common.grpc.limits.inflation import is_compressed


class Encoding(Layer):
    """Encodes answers: the handler returns messages, and the outer layers see bytes."""

    always_repeats = True

    def on_response(self, call: ServedCall, answer: Any) -> bytes:
        """Encode an answer."""
        return call.method.write(answer)


class Decoding(Layer):
    """Decodes requests, so that the inner layers see messages.

    The requests of a stream are decoded when the handler reads them.
    """

    always_repeats = True

    def __init__(self, memory: CallMemory | None = None) -> None:
        """The size of decompressed requests is counted in `memory`."""
        self._memory = memory

    def enter(self, call: ServedCall) -> Awaitable[None] | None:
        """Decode the one request.

        Errors: Overloaded, DecodeError, and Invalid when a list is too long or the compressed data are damaged.
        """
        if call.data is None:
            return None
        if is_compressed(call.data):
            return self._decompress(call, call.data)
        call.request = call.method.read(call.data)
        return None

    async def _decompress(self, call: ServedCall, compressed: bytes) -> None:
        data = await call.method.inflate(compressed)
        if self._memory is not None:
            self._memory.count_request(call, len(data))
        call.request = call.method.read(data)
