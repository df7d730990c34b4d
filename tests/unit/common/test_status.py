"""Every error kind travels over gRPC and comes back as itself."""

import grpc
import pytest

from ortoo.common import errors
from ortoo.common.status import TABLE, error_of, error_of_rpc, failure_of, status_of
from ortoo.v1 import failure_pb2


def kinds() -> list[type[errors.OrtooError]]:
    return [cls for cls in vars(errors).values() if isinstance(cls, type) and cls.__base__ is errors.OrtooError]


def test_every_kind_is_in_the_table_once() -> None:
    """No error kind, status or failure kind is missing or used twice."""
    assert {cls for cls, _, _ in TABLE} == set(kinds())
    assert len({status for _, status, _ in TABLE}) == len(TABLE)
    numbers = set(failure_pb2.FailureKind.values()) - {failure_pb2.FAILURE_KIND_UNSPECIFIED}
    assert {kind for _, _, kind in TABLE} == numbers


@pytest.mark.parametrize("cls", kinds())
def test_kind_survives_the_wire(cls: type[errors.OrtooError]) -> None:
    """Kind, message, field and delay are the same after a round trip."""
    there = cls("what; why; do this", field="topic", retry_after_ms=7)
    back = error_of(failure_pb2.Failure.FromString(failure_of(there).SerializeToString()))
    assert (type(back), back.message, back.field, back.retry_after_ms) == (cls, there.message, "topic", 7)


def rpc_error(code: grpc.StatusCode, *metadata: tuple[str, bytes]) -> grpc.aio.AioRpcError:
    return grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata(*metadata), details="words")


@pytest.mark.parametrize("code", [c for c in grpc.StatusCode if c is not grpc.StatusCode.OK])
def test_every_status_becomes_an_error(code: grpc.StatusCode) -> None:
    """A status without a Failure, such as the transport's own, still becomes a named error."""
    error = error_of_rpc(rpc_error(code), "peer")
    assert isinstance(error, errors.OrtooError)
    assert "peer" in str(error)
    if code is grpc.StatusCode.INTERNAL:
        assert isinstance(error, errors.Unavailable)  # the transport's word for a broken connection
    elif code in {status for _, status, _ in TABLE}:
        assert status_of(error) is code


def test_garbage_in_the_failure_metadata_is_ignored() -> None:
    """A peer that sends nonsense as its Failure is read by its status."""
    error = error_of_rpc(rpc_error(grpc.StatusCode.NOT_FOUND, ("ortoo-failure-bin", b"\xff\xff")), "peer")
    assert isinstance(error, errors.NotFound)


def test_default_message_is_the_class_docstring() -> None:
    """An error raised without words still says something."""
    assert str(errors.Fenced()) == "Somebody newer holds this right."
