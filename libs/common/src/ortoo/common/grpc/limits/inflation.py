"""Decompresses requests that the caller compressed by gRPC's own means, within the limit of a message.

gRPC's core would decompress each request on arrival, on several threads and before its memory is counted. A hundred
requests of 8 KB would become a hundred times 8 MiB. Servers therefore switch that off (`OPTIONS`). They decompress one
request at a time, after the caller is known. The core does not report whether a request is compressed, but its first
bytes do. No request of any method begins like gzip or zlib data, and a test checks all methods.
"""

import zlib
from typing import Final

from ortoo.common.errors import Invalid
from ortoo.common.grpc.channels import MESSAGE_BYTES_MAX

OPTIONS: Final = (("grpc.per_message_decompression", 0),)
WINDOWS: Final = {
    # As the key of a protobuf field this has a wire type that does not exist.
    b"\x1f\x8b": 16 + zlib.MAX_WBITS,
    # As the key of a protobuf field this is field 15, a number.
    **dict.fromkeys((b"\x78\x01", b"\x78\x5e", b"\x78\x9c", b"\x78\xda"), zlib.MAX_WBITS),
}
"""The first bytes of gzip and zlib data, and zlib's `wbits` for them."""


def inflate(data: bytes) -> bytes:
    """The decompressed request. Errors: Invalid if the request is damaged, or too large after decompression."""
    window = WINDOWS.get(data[:2])
    if window is None:
        return data
    inflating = zlib.decompressobj(window)
    try:
        found = inflating.decompress(data, MESSAGE_BYTES_MAX + 1)
    except zlib.error as error:
        raise Invalid(f"the compressed request is damaged: {error}; send it again, or without compression") from None
    if len(found) > MESSAGE_BYTES_MAX:
        raise Invalid(
            f"the request has more than {MESSAGE_BYTES_MAX} bytes when it is inflated; send less in one request"
        )
    if not inflating.eof:
        raise Invalid("the compressed request is truncated; send it again, or without compression")
    return found
