"""Refuses calls in the clear where TLS is required; health, reflection and the autoscaler's interface stay open."""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc

from ortoo.common.errors import Forbidden
from ortoo.common.grpc_errors import Context
from ortoo.snode.rpc.interception import OWN


class TlsOnly(grpc.aio.ServerInterceptor):
    """Lets through only what came by the port that speaks TLS."""

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Any:
        """Wrap the handler of the called method."""
        handler = await continuation(handler_call_details)
        if handler is None or not handler_call_details.method.startswith(OWN):
            return handler
        parts = (handler.request_deserializer, handler.response_serializer)
        if handler.unary_unary:
            return grpc.unary_unary_rpc_method_handler(_unary(handler.unary_unary), *parts)
        if handler.unary_stream:
            return grpc.unary_stream_rpc_method_handler(_stream(handler.unary_stream), *parts)
        return grpc.stream_stream_rpc_method_handler(_stream(handler.stream_stream), *parts)


def _unary(handle: Any) -> Any:
    async def guarded(request: Any, context: Context) -> Any:
        _check(context)
        return await handle(request, context)

    return guarded


def _stream(handle: Any) -> Any:
    async def guarded(given: Any, context: Context) -> AsyncIterator[Any]:
        _check(context)
        async for response in handle(given, context):
            yield response

    return guarded


def _check(context: Context) -> None:
    """Errors: Forbidden, when the connection is in the clear."""
    if b"ssl" not in context.auth_context().get("transport_security_type", ()):
        raise Forbidden(
            "this snode is called by TLS only; use its other port, tls_listen_address", field="tls_required"
        )
