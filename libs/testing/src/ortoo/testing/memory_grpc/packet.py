"""Packets of a call, its status, and the check of metadata."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import grpc
from grpc._cython import cygrpc

Metadata = tuple[tuple[str, str | bytes], ...]

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

    def as_grpc(self) -> Any:
        """The status as grpc.aio represents it."""
        code = STATUS_BY_NUMBER.get(self.code, grpc.StatusCode.UNKNOWN)
        told = f"{code.name}:{self.details}"
        return cygrpc.AioRpcStatus(code.value[0], self.details, self.trailing_metadata, told)


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


def failed_batch(why: str) -> Exception:
    """The error of grpc.aio for an operation that its core refused, most often because the call has ended."""
    error: Exception = cygrpc.ExecuteBatchError(f'Failed "execute_batch": {why}')
    return error


def sent_metadata(given: Iterable[Any]) -> Metadata:
    """Metadata as the other end receives it. Errors: TypeError, ExecuteBatchError for invalid characters."""
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
            raise failed_batch(f"metadata {key}={value!r} cannot be sent")
    if not _KEY.fullmatch(key):
        raise failed_batch(f"metadata {key}={value!r} cannot be sent")
    pair: tuple[str, str | bytes] = cygrpc._Metadatum(key, value)
    return pair
