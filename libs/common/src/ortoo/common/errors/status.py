"""One table that translates between error kinds, gRPC status and the proto Failure."""

import asyncio
import contextlib
from collections.abc import Iterator
from typing import Any

import grpc
from google.protobuf.message import DecodeError

from ortoo.common import errors
from ortoo.common.errors.handshakes import HandshakeFailed, handshake_fault
from ortoo.v1 import failure_pb2

FAILURE_METADATA_KEY = "ortoo-failure-bin"
TOLD_LENGTH_MAX, FIELD_LENGTH_MAX = 1_500, 255
"""Maximum lengths of an error's message and field in an answer, because the message and the field may repeat a long
text of the request. A client whose library accepts 8 KiB of headers would otherwise get no error text."""

TABLE: tuple[tuple[type[errors.OrtooError], grpc.StatusCode, "failure_pb2.FailureKind.ValueType"], ...] = (
    (errors.Invalid, grpc.StatusCode.INVALID_ARGUMENT, failure_pb2.FAILURE_KIND_INVALID),
    (errors.NotFound, grpc.StatusCode.NOT_FOUND, failure_pb2.FAILURE_KIND_NOT_FOUND),
    (errors.AlreadyExists, grpc.StatusCode.ALREADY_EXISTS, failure_pb2.FAILURE_KIND_ALREADY_EXISTS),
    (errors.Conflict, grpc.StatusCode.FAILED_PRECONDITION, failure_pb2.FAILURE_KIND_CONFLICT),
    (errors.Fenced, grpc.StatusCode.ABORTED, failure_pb2.FAILURE_KIND_FENCED),
    (errors.Overloaded, grpc.StatusCode.RESOURCE_EXHAUSTED, failure_pb2.FAILURE_KIND_OVERLOADED),
    (errors.Unavailable, grpc.StatusCode.UNAVAILABLE, failure_pb2.FAILURE_KIND_UNAVAILABLE),
    (errors.OutOfRange, grpc.StatusCode.OUT_OF_RANGE, failure_pb2.FAILURE_KIND_OUT_OF_RANGE),
    (errors.DataLoss, grpc.StatusCode.DATA_LOSS, failure_pb2.FAILURE_KIND_DATA_LOSS),
    (errors.Forbidden, grpc.StatusCode.PERMISSION_DENIED, failure_pb2.FAILURE_KIND_FORBIDDEN),
    (errors.Unsupported, grpc.StatusCode.UNIMPLEMENTED, failure_pb2.FAILURE_KIND_UNSUPPORTED),
    (errors.Internal, grpc.StatusCode.INTERNAL, failure_pb2.FAILURE_KIND_INTERNAL),
)

_NAMES = {cls: failure_pb2.FailureKind.Name(kind).removeprefix("FAILURE_KIND_") for cls, _, kind in TABLE}
FAILURES_RETURNED: dict[str, int] = dict.fromkeys(_NAMES.values(), 0)
"""The number of failures of each kind in this process's answers: as a call's status or within a stream."""

_STATUS_BY_CLASS = {cls: status for cls, status, _ in TABLE}
_KIND_BY_CLASS = {cls: kind for cls, _, kind in TABLE}
_CLASS_BY_KIND = {kind: cls for cls, _, kind in TABLE}
# Our servers always send a Failure, so that a status without one comes from the transport. A bare INTERNAL is therefore
# a broken connection ("Internal error from Core") and not a server's defect.
_CLASS_BY_BARE_STATUS = {status: cls for cls, status, _ in TABLE} | {
    grpc.StatusCode.DEADLINE_EXCEEDED: errors.Unavailable,
    grpc.StatusCode.CANCELLED: errors.Unavailable,
    grpc.StatusCode.INTERNAL: errors.Unavailable,
    grpc.StatusCode.UNAUTHENTICATED: errors.Forbidden,
    grpc.StatusCode.UNKNOWN: errors.Internal,
}


def status_of(error: errors.OrtooError) -> grpc.StatusCode:
    """The gRPC status that stands for `error`."""
    return _STATUS_BY_CLASS[kind_of(error)]


def kind_of(error: errors.OrtooError) -> type[errors.OrtooError]:
    """The public kind as which `error` is sent; a subclass such as NotLeader is sent as its base kind.

    Clients that do not know the subclass then still handle the error correctly.
    """
    return next(kind for kind in type(error).__mro__ if kind in _STATUS_BY_CLASS)


def count_failure(error: errors.OrtooError) -> None:
    """Count an error that an answer reports in another form than the message of `failure_of`."""
    FAILURES_RETURNED[_NAMES[kind_of(error)]] += 1


def told(text: str, length_max: int = TOLD_LENGTH_MAX) -> str:
    """The text, shortened to `length_max` characters."""
    return text if len(text) <= length_max else f"{text[:length_max]}..."


def failure_of(error: errors.OrtooError) -> failure_pb2.Failure:
    """`error` as a protobuf message; the error is counted as sent."""
    count_failure(error)
    failure = failure_pb2.Failure(
        kind=_KIND_BY_CLASS[kind_of(error)],
        message=told(error.message),
        field=told(error.field, FIELD_LENGTH_MAX),
        retry_after_ms=error.retry_after_ms,
    )
    if isinstance(error, errors.OutOfRange | errors.DataLoss):
        failure.begin_offset, failure.end_offset = error.begin_offset, error.end_offset
    if isinstance(error, errors.NotLeader):
        failure.moved.leader_address, failure.moved.epoch = error.leader_address, error.epoch
        failure.moved.SetInParent()
    return failure


def error_of(failure: failure_pb2.Failure) -> errors.OrtooError:
    """The error that `failure` describes; a kind that this process does not know becomes Internal."""
    cls = _CLASS_BY_KIND.get(failure.kind, errors.Internal)
    carried: dict[str, Any] = {}
    if issubclass(cls, errors.OutOfRange | errors.DataLoss):
        carried = {"begin_offset": failure.begin_offset, "end_offset": failure.end_offset}
    elif cls is errors.Unavailable and failure.HasField("moved"):
        cls, carried = errors.NotLeader, {"leader_address": failure.moved.leader_address, "epoch": failure.moved.epoch}
    return cls(failure.message, field=failure.field, retry_after_ms=failure.retry_after_ms, **carried)


_PLAIN_MESSAGES = {
    grpc.StatusCode.UNAVAILABLE: "cannot be reached now",
    grpc.StatusCode.INTERNAL: "cannot be reached now",
    grpc.StatusCode.CANCELLED: "cancelled the call",
    grpc.StatusCode.DEADLINE_EXCEEDED: "did not answer in time",
}
"""The texts for failed calls within the cluster. gRPC's own texts would show clients internal addresses."""


PROCESS_ERRORS = ("role_names.", "tls_cluster_listen_address", "x-ortoo-cluster")
"""The first characters of the fields of refusals that concern the calling process, not the user that it calls for."""


def _as_seen_by_clients(error: errors.OrtooError, peer: str) -> errors.OrtooError:
    """The error that a client gets when a call within the cluster failed with `error`.

    If a process lacks a role, the client gets Unavailable, because the user cannot fix this.
    """
    if isinstance(error, errors.Forbidden) and error.field.startswith(PROCESS_ERRORS):
        return errors.Unavailable(f"{peer} refuses this process: {error.message}", field=error.field)
    return error


def is_reported(error: errors.OrtooError) -> bool:
    """Whether the called process itself reported this error of `rpc_errors`; False = the transport did."""
    failed = error.__cause__
    metadata = failed.trailing_metadata() if isinstance(failed, grpc.aio.AioRpcError) else None
    return any(key == FAILURE_METADATA_KEY for key, _ in metadata or ())


def error_of_rpc(error: grpc.aio.AioRpcError, peer: str, *, is_internal: bool = False) -> errors.OrtooError:
    """The error of a failed call to `peer`: the server's own error, or an error with the transport's text.

    `is_internal` means a call within the cluster. A client may see the error of such a call. The error therefore has no
    address, and the transport's text becomes a note of the error, for the log.
    """
    for key, value in error.trailing_metadata() or ():
        if key == FAILURE_METADATA_KEY:
            with contextlib.suppress(DecodeError, TypeError):
                told = error_of(failure_pb2.Failure.FromString(value))  # type: ignore[arg-type]
                return _as_seen_by_clients(told, peer) if is_internal else told
    cls, said = _CLASS_BY_BARE_STATUS.get(error.code(), errors.Internal), error.details() or error.code().name
    if (fault := handshake_fault(said)) is not None:
        failed = HandshakeFailed(peer, fault)
        failed.add_note(said)
        return failed
    if not is_internal:
        return cls(f"{peer}: {said}")
    plain = cls(f"{peer} {_PLAIN_MESSAGES.get(error.code(), 'refused the call')}")
    plain.add_note(said)
    return plain


@contextlib.contextmanager
def rpc_errors(peer: str, *, is_internal: bool = False) -> Iterator[None]:
    """Turn failed gRPC calls in the block into OrtooErrors that name `peer`; `is_internal`: calls in the cluster.

    The block raises CancelledError if the task was cancelled just as a call failed. In that case grpc.aio loses the
    cancellation and raises the failure, and a loop that retries after failures would never end.
    """
    before = cancellation_count()
    try:
        yield
    except grpc.aio.AioRpcError as error:
        if cancellation_count() > before:
            raise asyncio.CancelledError from error
        raise error_of_rpc(error, peer, is_internal=is_internal) from error


def cancellation_count() -> int:
    """The number of cancellation requests of the current task."""
    task = asyncio.current_task()
    return 0 if task is None else task.cancelling()
