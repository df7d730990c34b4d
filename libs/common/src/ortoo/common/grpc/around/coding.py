"""The layers between which calls are messages: outside of them requests and answers are bytes."""

from typing import Any

from ortoo.common.grpc.around.call_memory import CallMemory
from ortoo.common.grpc.around.layers import Call, Layer
from ortoo.common.grpc.limits.inflation import inflated


class Encoding(Layer):
    """Within it answers are messages."""

    def answered(self, call: Call, answer: Any) -> bytes:
        """Write an answer."""
        return call.method.write(answer)


class Decoding(Layer):
    """Within it requests are messages. Those of a stream are decoded when its handler reads them."""

    def __init__(self, memory: CallMemory | None = None) -> None:
        """What a compressed request becomes is counted in `memory`."""
        self._memory = memory

    def enter(self, call: Call) -> None:
        """Decode the one request.

        Errors: Invalid, when one of its lists is too long, or it is compressed and damaged; Overloaded; DecodeError.
        """
        if call.data is None:
            return
        data = inflated(call.data)
        if data is not call.data and self._memory is not None:
            self._memory.brought(call, len(data))
        call.request = call.method.read(data)
