"""Packets of a call, its status, and the check of metadata."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import grpc

Metadata = tuple[tuple[str, str | bytes], ...]


class Metadatum(NamedTuple):
    """A pair of metadata, with the names that it has in grpc.aio."""

    key: str
    value: str | bytes


class CallStatus:
    """The status of a call, in the form in which the classes of grpc.aio read it."""

    def __init__(self, code: int, details: str, trailing_metadata: Metadata | None, debug_error: str | None) -> None:
        self._code = code
        self._details = details
        self._trailing_metadata = trailing_metadata
        self._debug_error = debug_error

    def code(self) -> int:
        """The number of the code."""
        return self._code

    def details(self) -> str:
        """The details."""
        return self._details

    def trailing_metadata(self) -> Metadata | None:
        """The metadata that came with the status."""
        return self._trailing_metadata

    def debug_error_string(self) -> str | None:
        """A text for developers."""
        return self._debug_error


STATUS_BY_NUMBER = {status.value[0]: status for status in grpc.StatusCode}

_KEY = re.compile(r"[0-9a-z_.-]+")
_TEXT = re.compile(r"[\x20-\x7e]*")


@dataclass(frozen=True, slots=True)
class Status:
    """How a call ended."""

    code: int
    details: str
    trailing_metadata: Metadata = ()

    @property
    def is_ok(self) -> bool:
        """Whether the code is OK."""
        return self.code == 0

    def as_grpc(self) -> CallStatus:
        """The status for the classes of grpc.aio."""
        code = STATUS_BY_NUMBER.get(self.code, grpc.StatusCode.UNKNOWN)
        told = f"{code.name}:{self.details}"
        return CallStatus(code.value[0], self.details, self.trailing_metadata, told)


@dataclass(slots=True)
class Packet:
    """One transmission of one end of a call. The other end handles it as a whole: metadata, message, then the rest."""

    method: str
    metadata: Metadata | None = None
    """In a request, the caller's metadata. In an answer, the initial metadata."""
    timeout_s: float | None = None
    """With the metadata of a request: the time that the caller waits for the end of the call."""
    message: bytes | None = None
    is_last: bool = False
    """The caller sends no further messages."""
    is_cancelled: bool = False
    """The caller cancelled the call."""
    status: Status | None = None
    """The server's final status."""
    read_bytes: int = 0
    """Bytes of messages that the sending end has read; the window grows by as much."""

    @property
    def size_bytes(self) -> int:
        """The approximate size on a wire."""
        metadata = (*(self.metadata or ()), *(self.status.trailing_metadata if self.status else ()))
        return len(self.message or b"") + 16 + sum(len(key) + len(value) for key, value in metadata)


class FailedBatch(grpc.aio.InternalError):
    """The error of grpc.aio for an operation that its core refused, most often because the call has ended."""

    def __init__(self, reason: str) -> None:
        super().__init__(f'Failed "execute_batch": {reason}')


def sent_metadata(given: Iterable[Any]) -> Metadata:
    """Metadata as the other end receives it. Errors: TypeError, FailedBatch for invalid characters."""
    return tuple(_sent_pair(key, value) for key, value in given)


def _sent_pair(key: Any, value: Any) -> tuple[str, str | bytes]:
    if not isinstance(key, str):
        raise TypeError(f"Expected str, not {type(key)}")
    if key.endswith("-bin"):
        if not isinstance(value, bytes):
            raise TypeError(f'Binary metadata key="{key}" expected bytes, got {type(value)}')
    elif not isinstance(value, str | bytes):
        raise TypeError(f"Expected str, not {type(value)}")
    else:
        value = value.decode("latin-1") if isinstance(value, bytes) else value
        if not _TEXT.fullmatch(value):
            raise FailedBatch(f"metadata {key}={value!r} cannot be sent")
    if not _KEY.fullmatch(key):
        raise FailedBatch(f"metadata {key}={value!r} cannot be sent")
    return Metadatum(key, value)
