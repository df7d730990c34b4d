"""The status of a call that grpc.aio replaces when a write fails."""

from typing import Any

import grpc
import pytest

from ortoo.common.errors import Conflict, Forbidden, Internal, OrtooError, Unavailable
from ortoo.common.errors.server_status import ServerStatus
from ortoo.common.errors.status import FAILURE_METADATA_KEY, error_of_rpc, failure_of, status_of

REPLACED = grpc.aio.AioRpcError(grpc.StatusCode.INTERNAL, grpc.aio.Metadata(), grpc.aio.Metadata(), "Internal error")
ENDED = grpc.aio.AioRpcError(grpc.StatusCode.OK, grpc.aio.Metadata(), grpc.aio.Metadata(), "")


class Call:
    """A call that gets one status after another, and reports each to its callback."""

    def __init__(self) -> None:
        self.status = REPLACED
        self.callback: Any = None

    def add_done_callback(self, callback: Any) -> None:
        """Keep the one callback."""
        self.callback = callback

    def end(self, status: grpc.aio.AioRpcError) -> None:
        """Get a status."""
        self.status = status
        self.callback(self)

    async def code(self) -> grpc.StatusCode:
        """The code of the last status."""
        return self.status.code()

    async def details(self) -> str | None:
        """The text of the last status."""
        return self.status.details()

    async def initial_metadata(self) -> Any:
        """No metadata."""
        return self.status.initial_metadata()

    async def trailing_metadata(self) -> Any:
        """The metadata of the last status."""
        return self.status.trailing_metadata()


def refusal(error: OrtooError) -> grpc.aio.AioRpcError:
    """The status with which a server of this cluster reports `error`."""
    metadata = grpc.aio.Metadata((FAILURE_METADATA_KEY, failure_of(error).SerializeToString()))
    return grpc.aio.AioRpcError(status_of(error), grpc.aio.Metadata(), metadata, str(error))


def kind_after(*statuses: grpc.aio.AioRpcError) -> type[OrtooError]:
    """The kind of the error for a call that got these statuses."""
    call: Any = Call()
    kept = ServerStatus(call)
    for status in statuses:
        call.end(status)
    return type(error_of_rpc(kept.of(statuses[-1]), "snode"))


@pytest.mark.parametrize("kind", [Forbidden, Conflict, Internal])
def test_a_refusal_outlives_the_status_of_a_failed_write(kind: type[OrtooError]) -> None:
    """Also a defect of the server, which has the same code as a failed write."""
    assert kind_after(refusal(kind("no")), REPLACED) is kind
    assert kind_after(REPLACED, refusal(kind("no"))) is kind


def test_a_stream_that_ends_during_a_write_is_a_broken_stream() -> None:
    """The client opens another one. An end without an error is no defect of the server."""
    assert kind_after(ENDED, REPLACED) is Unavailable
    assert kind_after(REPLACED) is Unavailable
