"""gRPC's framing of messages, metadata, timeouts and statuses in HTTP/2, without I/O."""

import base64
import binascii
import re
from collections.abc import Iterable, Sequence
from itertools import chain
from struct import Struct
from typing import Any, Final
from urllib.parse import quote

from ortoo.common.grpc.bulk_field import Pieces

Headers = tuple[tuple[bytes, bytes], ...]
Metadata = tuple[tuple[str, str | bytes], ...]

PREFIX_BYTES: Final = 5
COPIED_BYTES_MAX: Final = 64 << 10
"""A larger message is queued without being copied behind its prefix."""
_PREFIX: Final = Struct(">BI")
CONTENT_TYPE: Final = b"application/grpc"
RESPONSE: Final[Headers] = ((b":status", b"200"), (b"content-type", CONTENT_TYPE))
OK_TRAILERS: Final[Headers] = ((b"grpc-status", b"0"),)
_SEPARATOR: Final = b"\0"
_UNITS_S: Final = {b"H": 3600.0, b"M": 60.0, b"S": 1.0, b"m": 1e-3, b"u": 1e-6, b"n": 1e-9}
_TIMEOUT: Final = re.compile(rb"([0-9]{1,8})([HMSmun])")
_DETAILS_SAFE: Final = "".join(chr(code) for code in range(0x20, 0x7F) if chr(code) != "%")
_RESERVED: Final = frozenset((b"te", b"content-type", b"grpc-timeout", b"grpc-encoding", b"grpc-accept-encoding"))
"""Headers of the protocol itself, which are no metadata."""


class MessageTooLarge(Exception):
    """A message above the limit; its only argument is the size in bytes."""


class MessageReader:
    """Assembles the messages of a stream of bytes. The bytes of a message that comes in parts are copied once."""

    __slots__ = ("_bytes_max", "_missing_bytes", "_parts", "_parts_bytes")

    def __init__(self, bytes_max: int) -> None:
        """A message may have `bytes_max` bytes."""
        self._bytes_max = bytes_max
        self._parts: list[bytes | memoryview] = []
        """The incomplete message: its prefix, or behind a complete prefix its content."""
        self._parts_bytes = 0
        self._missing_bytes = 0
        """The number of bytes that the content still needs; 0 while the prefix is incomplete."""

    @property
    def partial_bytes(self) -> int:
        """The number of bytes that are kept of an incomplete message."""
        return self._parts_bytes

    def feed(self, data: bytes) -> list[bytes]:
        """The messages that `data` completes. Errors: MessageTooLarge, as soon as the size is known."""
        found: list[bytes] = []
        start = 0
        if self._parts:
            if not self._missing_bytes:
                data = b"".join((*self._parts, data))
            elif len(data) < self._missing_bytes:
                self._keep(data, self._missing_bytes - len(data))
                return found
            else:
                start = self._missing_bytes
                found.append(b"".join((*self._parts, memoryview(data)[:start])))
            self._parts, self._parts_bytes = [], 0
        end = len(data)
        while end - start >= PREFIX_BYTES:
            size = _PREFIX.unpack_from(data, start)[1]
            if size > self._bytes_max:
                raise MessageTooLarge(size)
            start += PREFIX_BYTES
            if start + size > end:
                # A view keeps all of `data`, which is worth it only for most of it.
                is_most = 2 * start < end
                self._keep(memoryview(data)[start:] if is_most else data[start:], start + size - end)
                return found
            found.append(data[start : start + size])
            start += size
        if start < end:
            self._keep(data[start:], 0)
        return found

    def _keep(self, part: bytes | memoryview, missing_bytes: int) -> None:
        self._parts.append(part)
        self._parts_bytes += len(part)
        self._missing_bytes = missing_bytes


def whole_message(data: bytes) -> bytes | None:
    """The message in these bytes; None if they are not exactly one message without compression."""
    if len(data) < PREFIX_BYTES or data[0] or int.from_bytes(data[1:PREFIX_BYTES]) != len(data) - PREFIX_BYTES:
        return None
    return data[PREFIX_BYTES:]


def frame(data: bytes) -> bytes:
    """A message with its prefix."""
    return _PREFIX.pack(0, len(data)) + data


def framed(data: bytes | Pieces) -> Sequence[bytes]:
    """A message with its prefix, in pieces if it is large."""
    if isinstance(data, Pieces):
        return _PREFIX.pack(0, len(data)), *data.pieces
    if len(data) > COPIED_BYTES_MAX:
        return _PREFIX.pack(0, len(data)), data
    return (frame(data),)


def timeout_s(value: bytes) -> float | None:
    """The timeout in a `grpc-timeout` header; None if the value is invalid."""
    found = _TIMEOUT.fullmatch(value)
    return int(found[1]) * _UNITS_S[found[2]] if found else None


def read_metadata(headers: Headers) -> Metadata:
    """The metadata in the headers of a call. Errors: ValueError for a binary value that is not base64."""
    return tuple(
        (key.decode(), _binary(value) if key.endswith(b"-bin") else value.decode("utf-8", "replace"))
        for key, value in headers
        if key[:1] != b":" and key not in _RESERVED
    )


def pack(headers: Headers) -> bytes:
    """Headers of a call as one object. HTTP/2 allows no NUL in them."""
    return _SEPARATOR.join(chain.from_iterable(headers))


def unpack(data: bytes) -> Headers:
    """The packed headers."""
    parts = iter(data.split(_SEPARATOR))
    return tuple(zip(parts, parts, strict=True))


def write_metadata(metadata: Iterable[tuple[str, Any]]) -> Headers:
    """Metadata as headers. Errors: TypeError, ValueError for a key or value that gRPC does not allow."""
    return tuple((key.encode("ascii"), _written(key, value)) for key, value in metadata)


def trailers(code: int, details: str, metadata: Iterable[tuple[str, Any]]) -> Headers:
    """A status as trailers."""
    if not code and not details and not metadata:
        return OK_TRAILERS
    status: Headers = ((b"grpc-status", b"%d" % code),)
    if details:
        status += ((b"grpc-message", quote(details, safe=_DETAILS_SAFE, errors="replace").encode()),)
    return status + write_metadata(metadata)


def _binary(value: bytes) -> bytes:
    try:
        return base64.b64decode(value + b"=" * (-len(value) % 4), validate=True)
    except binascii.Error:
        raise ValueError("binary metadata must be base64") from None


def _written(key: str, value: Any) -> bytes:
    if key.endswith("-bin"):
        if not isinstance(value, bytes):
            raise TypeError(f"metadata {key} must be bytes")
        return base64.b64encode(value).rstrip(b"=")
    if isinstance(value, bytes):
        return value
    if not isinstance(value, str):
        raise TypeError(f"metadata {key} must be text")
    return value.encode("ascii")
