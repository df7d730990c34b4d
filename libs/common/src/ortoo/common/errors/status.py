"""One table between error kinds, gRPC status and the proto Failure, both ways."""

import asyncio
import contextlib
from collections.abc import Iterator
from typing import Any

import grpc
from google.protobuf.message import DecodeError

from ortoo.common import errors
from ortoo.v1 import failure_pb2

FAILURE_METADATA_KEY = "ortoo-failure-bin"
TOLD_LENGTH_MAX, FIELD_LENGTH_MAX = 1_500, 255
"""How much of an error's message and field a caller is told. They may repeat a text of any length from the request, and
a client whose library takes 8 KiB of headers would learn nothing at all."""

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
FAILURES_TOLD: dict[str, int] = dict.fromkeys(_NAMES.values(), 0)
"""Kind to how many failures of it this process has told its callers: as a call's status or within a stream."""

_STATUS_BY_CLASS = {cls: status for cls, status, _ in TABLE}
_KIND_BY_CLASS = {cls: kind for cls, _, kind in TABLE}
_CLASS_BY_KIND = {kind: cls for cls, _, kind in TABLE}
# Statuses without a Failure were made by the transport: our servers always send one. That is why a bare INTERNAL is a
# broken connection ("Internal error from Core") and not a server's defect.
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
    """The public kind that `error` travels as: of a narrower one, such as Moved, the kind that it is one of."""
    return next(kind for kind in type(error).__mro__ if kind in _STATUS_BY_CLASS)


def count_told(error: errors.OrtooError) -> None:
    """Count a failure that a caller is told of in other words than `failure_of`."""
    FAILURES_TOLD[_NAMES[kind_of(error)]] += 1


def told(text: str, length_max: int = TOLD_LENGTH_MAX) -> str:
    """As much of a text as a caller is told."""
    return text if len(text) <= length_max else f"{text[:length_max]}..."


def failure_of(error: errors.OrtooError) -> failure_pb2.Failure:
    """`error` as it travels; it counts as told."""
    count_told(error)
    failure = failure_pb2.Failure(
        kind=_KIND_BY_CLASS[kind_of(error)],
        message=told(error.message),
        field=told(error.field, FIELD_LENGTH_MAX),
        retry_after_ms=error.retry_after_ms,
    )
    if isinstance(error, errors.OutOfRange | errors.DataLoss):
        failure.begin_offset, failure.end_offset = error.begin_offset, error.end_offset
    if isinstance(error, errors.Moved):
        failure.moved.leader_address, failure.moved.epoch = error.leader_address, error.epoch
        failure.moved.SetInParent()
    return failure


def error_of(failure: failure_pb2.Failure) -> errors.OrtooError:
    """The error that travelled as `failure`; a kind this process does not know becomes Internal."""
    cls = _CLASS_BY_KIND.get(failure.kind, errors.Internal)
    carried: dict[str, Any] = {}
    if issubclass(cls, errors.OutOfRange | errors.DataLoss):
        carried = {"begin_offset": failure.begin_offset, "end_offset": failure.end_offset}
    elif cls is errors.Unavailable and failure.HasField("moved"):
        cls, carried = errors.Moved, {"leader_address": failure.moved.leader_address, "epoch": failure.moved.epoch}
    return cls(failure.message, field=failure.field, retry_after_ms=failure.retry_after_ms, **carried)


_PLAIN_WORDS = {
    grpc.StatusCode.UNAVAILABLE: "cannot be reached now",
    grpc.StatusCode.INTERNAL: "cannot be reached now",
    grpc.StatusCode.CANCELLED: "broke the call off",
    grpc.StatusCode.DEADLINE_EXCEEDED: "did not answer in time",
}
"""What a caller is told of a call within the cluster: gRPC's words name addresses that are none of its business."""


OF_PROCESSES = ("role_names.", "tls_cluster_listen_address", "x-ortoo-cluster")
"""How the fields begin of refusals that are about the process that calls, and not about the user that it calls for."""


def _told_within(error: errors.OrtooError, peer: str) -> errors.OrtooError:
    """The error of a call within the cluster as a client is told it: a process without a role is no user's fault."""
    if isinstance(error, errors.Forbidden) and error.field.startswith(OF_PROCESSES):
        return errors.Unavailable(f"{peer} refuses this process: {error.message}", field=error.field)
    return error


def error_of_rpc(error: grpc.aio.AioRpcError, peer: str, *, within: bool = False) -> errors.OrtooError:
    """The error behind a failed call to `peer`: the server's own one, or what the transport met.

    `within`: the call was one within the cluster, and its error may be told to a client: it names no address. What the
    transport said stays with it as a note, for the log.
    """
    for key, value in error.trailing_metadata() or ():
        if key == FAILURE_METADATA_KEY:
            with contextlib.suppress(DecodeError, TypeError):
                told = error_of(failure_pb2.Failure.FromString(value))  # type: ignore[arg-type]
                return _told_within(told, peer) if within else told
    cls, said = _CLASS_BY_BARE_STATUS.get(error.code(), errors.Internal), error.details() or error.code().name
    if said.startswith("failed to connect") and said.endswith("Socket closed"):
        said += "; it hangs up at once: does it want TLS, with a certificate?"
    if not within:
        return cls(f"{peer}: {said}")
    plain = cls(f"{peer} {_PLAIN_WORDS.get(error.code(), 'refused the call')}")
    plain.add_note(said)
    return plain


@contextlib.contextmanager
def rpc_errors(peer: str, *, within: bool = False) -> Iterator[None]:
    """Turn failed gRPC calls in the block into OrtooErrors that name `peer`; `within` as `error_of_rpc` says.

    Errors: CancelledError too, when the task was cancelled just as a call failed. grpc.aio forgets the cancellation
    then and raises the failure; a loop that tries again after failures would never end.
    """
    before = cancellations()
    try:
        yield
    except grpc.aio.AioRpcError as error:
        if cancellations() > before:
            raise asyncio.CancelledError from error
        raise error_of_rpc(error, peer, within=within) from error


def cancellations() -> int:
    """How often the current task was asked to end."""
    task = asyncio.current_task()
    return 0 if task is None else task.cancelling()
