"""The server of gRPC's interop test cases, on the transport of the test."""

import contextlib
from collections.abc import AsyncIterator
from typing import Any
from unittest import mock

import grpc

from ortoo.common.grpc.channels import MESSAGE_BYTES_MAX
from ortoo.common.grpc.limits.element_limits import ELEMENTS_MAX, SHORT
from ortoo.common.grpc.server import GrpcServer
from ortoo.common.grpc.tls import TlsListener
from ortoo.common.process.clock import SystemClock

SERVICE = "grpc.testing.TestService"
OUTPUT = ("StreamingOutputCallRequest", "StreamingOutputCallResponse")
INPUT = ("StreamingInputCallRequest", "StreamingInputCallResponse")
ECHO_INITIAL, ECHO_TRAILING = "x-grpc-test-echo-initial", "x-grpc-test-echo-trailing-bin"
CASES = (
    "empty_unary",
    "large_unary",
    "client_streaming",
    "server_streaming",
    "ping_pong",
    "empty_stream",
    "cancel_after_begin",
    "cancel_after_first_response",
    "timeout_on_sleeping_server",
    "status_code_and_message",
    "special_status_message",
    "custom_metadata",
    "unimplemented_method",
    "unimplemented_service",
)
"""The cases that all clients run. Those with compressed answers are left out, because no answer is compressed."""

messages: Any
stubs: Any
messages, stubs = grpc.protos_and_services("tests/interop/testing.proto")


@contextlib.asynccontextmanager
async def interop_server(tls: TlsListener | None = None) -> AsyncIterator[GrpcServer]:
    """A listening server with the layers of every role."""
    service = InteropService()
    kinds = {
        "EmptyCall": (grpc.unary_unary_rpc_method_handler, service.empty, "Empty", "Empty"),
        "UnaryCall": (grpc.unary_unary_rpc_method_handler, service.unary, "SimpleRequest", "SimpleResponse"),
        "StreamingOutputCall": (grpc.unary_stream_rpc_method_handler, service.output, *OUTPUT),
        "StreamingInputCall": (grpc.stream_unary_rpc_method_handler, service.input, *INPUT),
        "FullDuplexCall": (grpc.stream_stream_rpc_method_handler, service.duplex, *OUTPUT),
    }
    handlers: dict[str, Any] = {
        name: kind(handle, getattr(messages, request).FromString, getattr(messages, answer).SerializeToString)
        for name, (kind, handle, request, answer) in kinds.items()
    }

    def add(to: Any) -> None:
        to.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))

    # A method with a list that has no limit is not served.
    with mock.patch.dict(ELEMENTS_MAX, {"grpc.testing.StreamingOutputCallRequest.response_parameters": SHORT}):
        async with GrpcServer("127.0.0.1:0", [(SERVICE, add)], tls=tls) as server:
            yield server


class InteropService:
    """The methods, as gRPC's description of the cases defines them."""

    async def empty(self, request: Any, context: Any) -> Any:
        """An empty answer."""
        await _echo_metadata(context)
        return messages.Empty()

    async def unary(self, request: Any, context: Any) -> Any:
        """An answer of the requested size, or the requested status."""
        await _echo_metadata(context)
        await _abort_if_requested(request, context)
        return messages.SimpleResponse(payload=_payload(request.response_size))

    async def output(self, request: Any, context: Any) -> AsyncIterator[Any]:
        """Answers of the requested sizes."""
        async for answer in _answers(request):
            yield answer

    async def input(self, requests: AsyncIterator[Any], context: Any) -> Any:
        """The total size of the requests' payloads."""
        size = 0
        async for request in requests:
            size += len(request.payload.body)
        return messages.StreamingInputCallResponse(aggregated_payload_size=size)

    async def duplex(self, requests: AsyncIterator[Any], context: Any) -> AsyncIterator[Any]:
        """The answers of each request."""
        await _echo_metadata(context)
        async for request in requests:
            await _abort_if_requested(request, context)
            async for answer in _answers(request):
                yield answer


async def _echo_metadata(context: Any) -> None:
    given = dict(context.invocation_metadata())
    if ECHO_INITIAL in given:
        await context.send_initial_metadata(((ECHO_INITIAL, given[ECHO_INITIAL]),))
    if ECHO_TRAILING in given:
        context.set_trailing_metadata(((ECHO_TRAILING, given[ECHO_TRAILING]),))


async def _abort_if_requested(request: Any, context: Any) -> None:
    if request.HasField("response_status"):
        code = next(one for one in grpc.StatusCode if one.value[0] == request.response_status.code)
        await context.abort(code, request.response_status.message)


async def _answers(request: Any) -> AsyncIterator[Any]:
    for wanted in request.response_parameters:
        if wanted.interval_us:
            await SystemClock().sleep(wanted.interval_us / 1e6)
        yield messages.StreamingOutputCallResponse(payload=_payload(wanted.size))


def _payload(size: int) -> Any:
    assert 0 <= size <= MESSAGE_BYTES_MAX
    return messages.Payload(body=bytes(size))
