"""What interceptors of a server's calls have in common: which handlers are wrapped, and by which form."""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from typing import Any

import grpc

OWN = ("/ortoo.v1.", "/apache.rocketmq.v2.")
"""Services whose calls are intercepted; health and reflection are not."""


class HandlerWrapping(grpc.aio.ServerInterceptor, ABC):
    """Wraps the handlers of our services. No method of theirs takes a stream and gives one answer."""

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Any:
        """Wrap the handler of the called method."""
        handler = await continuation(handler_call_details)
        full_name = handler_call_details.method
        if handler is None or not full_name.startswith(OWN):
            return handler
        method = full_name.rpartition(".")[2]
        parts = (handler.request_deserializer, handler.response_serializer)
        if handler.unary_unary:
            return grpc.unary_unary_rpc_method_handler(self._unary(handler.unary_unary, method), *parts)
        if handler.unary_stream:
            return grpc.unary_stream_rpc_method_handler(self._stream(handler.unary_stream, method), *parts)
        return grpc.stream_stream_rpc_method_handler(self._both(handler.stream_stream, method), *parts)

    @abstractmethod
    def _unary(self, handle: Any, method: str) -> Any:
        """Wrap a handler of one request and one answer."""

    @abstractmethod
    def _stream(self, handle: Any, method: str) -> Any:
        """Wrap a handler of one request and many answers."""

    @abstractmethod
    def _both(self, handle: Any, method: str) -> Any:
        """Wrap a handler of many requests and many answers."""
