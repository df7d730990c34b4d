"""Decompresses requests that the caller compressed by gRPC's own means, within the limit of a message.

gRPC's core would decompress each request on arrival, on several threads and before its memory is counted. A hundred
requests of 8 KB would become a hundred times 8 MiB. Servers therefore switch that off (`OPTIONS`). They decompress one
request at a time, after the caller is known. The core does not report whether a request is compressed, but its first
bytes do. No request of any method begins like gzip or zlib data, and a test checks all methods. The transport h2 passes
on compressed requests in the same way.
"""

import asyncio
import zlib
from collections.abc import Callable
from typing import Final

from ortoo.common.errors import Invalid
from ortoo.common.grpc.channels import MESSAGE_BYTES_MAX
from ortoo.common.process.clock import SystemClock

OPTIONS: Final = (("grpc.per_message_decompression", 0),)
WINDOWS: Final = {
    # As the key of a protobuf field this has a wire type that does not exist.
    b"\x1f\x8b": 16 + zlib.MAX_WBITS,
    # As the key of a protobuf field this is field 15, a number.
    **dict.fromkeys((b"\x78\x01", b"\x78\x5e", b"\x78\x9c", b"\x78\xda"), zlib.MAX_WBITS),
}
"""The first bytes of gzip and zlib data, and zlib's `wbits` for them."""
BEGINNING_BYTES: Final = 16 << 10
"""The number of bytes that are decompressed and checked first, because a full decompression may take 0.1 s."""


def is_compressed(data: bytes) -> bool:
    """Whether a request has to be decompressed."""
    return data[:2] in WINDOWS


class Inflation:
    """The decompression of requests of one server, one at a time.

    The event loop does other work between two requests, so that it continues while many compressed requests wait.
    """

    def __init__(self) -> None:
        self._turn = asyncio.Lock()
        self._clock = SystemClock()

    async def inflate(self, data: bytes, check_beginning: Callable[[bytes], object]) -> bytes:
        """The decompressed request; `check_beginning` may refuse it by its first bytes.

        Errors: those of `check_beginning`. Invalid if the request is damaged, or too large after decompression.
        """
        async with self._turn:
            await self._clock.sleep(0)
            inflating = Inflating(data)
            if inflating.beginning():
                check_beginning(inflating.found)
                await asyncio.to_thread(inflating.rest)
            return inflating.found


class Inflating:
    """The decompression of one request."""

    def __init__(self, data: bytes) -> None:
        """`data` is a compressed request."""
        self.found = data[:0]
        """The decompressed bytes."""
        self._tail = data
        self._zlib = zlib.decompressobj(WINDOWS[data[:2]])

    def beginning(self) -> bool:
        """Decompress the first bytes; returns whether there are more. Errors: Invalid if the request is damaged."""
        self._decompress(BEGINNING_BYTES)
        return not self._zlib.eof

    def rest(self) -> None:
        """Decompress all further bytes. Errors: Invalid if the request is damaged, or too large."""
        self._decompress(MESSAGE_BYTES_MAX + 1 - len(self.found))
        if len(self.found) > MESSAGE_BYTES_MAX:
            raise Invalid(
                f"the request has more than {MESSAGE_BYTES_MAX} bytes when it is inflated; send less in one request"
            )
        if not self._zlib.eof:
            raise Invalid("the compressed request is truncated; send it again, or without compression")

    def _decompress(self, bytes_max: int) -> None:
        try:
            self.found += self._zlib.decompress(self._tail, bytes_max)
        except zlib.error as error:
            raise Invalid(
                f"the compressed request is damaged: {error}; send it again, or without compression"
            ) from None
        self._tail = self._zlib.unconsumed_tail
