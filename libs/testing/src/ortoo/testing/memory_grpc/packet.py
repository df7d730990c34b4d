"""What travels: the words of one end of a call, the status of a call, and which metadata may be sent."""

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
        """Whether it went well."""
        return self.code == 0

    def as_grpc(self) -> Any:
        """What grpc.aio takes for a status."""
        code = STATUS_BY_NUMBER.get(self.code, grpc.StatusCode.UNKNOWN)
        told = f"{code.name}:{self.details}"
        return cygrpc.AioRpcStatus(code.value[0], self.details, self.trailing_metadata, told)


@dataclass(slots=True)
class Packet:
    """What one end of a call says at once. The other end takes it as a whole: metadata, message, then the rest."""

    method: str
    metadata: Metadata | None = None
    """Of the request: the caller's. Of the answer: the initial ones."""
    timeout_s: float | None = None
    """With the metadata of a request: how long the caller waits for the end of the call."""
    message: bytes | None = None
    is_last: bool = False
    """The caller sends no more messages."""
    is_cancelled: bool = False
    """The caller is not interested any more."""
    status: Status | None = None
    """The server's last word."""
    read_bytes: int = 0
    """So many bytes of messages were read by the end that says so, and as many more may be written."""

    @property
    def size_bytes(self) -> int:
        """About how large it is on a wire."""
        metadata = (*(self.metadata or ()), *(self.status.trailing_metadata if self.status else ()))
        return len(self.message or b"") + 16 + sum(len(key) + len(value) for key, value in metadata)


def failed_batch(why: str) -> Exception:
    """What grpc.aio raises when its core could not do something to a call, most often because the call has ended."""
    error: Exception = cygrpc.ExecuteBatchError(f'Failed "execute_batch": {why}')
    return error


def sent_metadata(given: Iterable[Any]) -> Metadata:
    """Metadata as the other end gets it. Errors: TypeError; ExecuteBatchError for signs that HTTP/2 does not carry."""
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
