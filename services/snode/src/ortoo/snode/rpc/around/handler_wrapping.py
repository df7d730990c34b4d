"""What interceptors of a server's calls have in common: which handlers are wrapped, and by which form."""

import contextlib
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc

from ortoo.common.grpc.errors import Context

OWN = ("/ortoo.v1.", "/apache.rocketmq.v2.")
"""Services whose calls are intercepted; health and reflection are not."""


class HandlerWrapping(grpc.aio.ServerInterceptor, ABC):
    """Wraps the handlers of our services. No method of theirs takes a stream and gives one answer."""

    services: tuple[str, ...] = OWN
    """How the full names of the methods begin whose handlers are wrapped."""

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Any:
        """Wrap the handler of the called method."""
        handler = await continuation(handler_call_details)
        full_name = handler_call_details.method
        if handler is None or not full_name.startswith(self.services):
            return handler
        method = full_name.rpartition(".")[2]
        parts = (self._read(handler.request_deserializer), handler.response_serializer)
        if handler.unary_unary:
            return grpc.unary_unary_rpc_method_handler(self._unary(handler.unary_unary, method), *parts)
        if handler.unary_stream:
            return grpc.unary_stream_rpc_method_handler(self._stream(handler.unary_stream, method), *parts)
        parts = (handler.request_deserializer, handler.response_serializer)
        return grpc.stream_stream_rpc_method_handler(self._both(handler.stream_stream, method), *parts)

    def _read(self, read: Any) -> Any:
        """How the request of a method is read that takes one."""
        return read

    @abstractmethod
    def _unary(self, handle: Any, method: str) -> Any:
        """Wrap a handler of one request and one answer."""

    @abstractmethod
    def _stream(self, handle: Any, method: str) -> Any:
        """Wrap a handler of one request and many answers."""

    @abstractmethod
    def _both(self, handle: Any, method: str) -> Any:
        """Wrap a handler of many requests and many answers."""


class CallWrapping(HandlerWrapping):
    """Does the same before and after each call, whatever its form."""

    @abstractmethod
    async def _before(self, method: str, request: Any, context: Context) -> Any:
        """What is done before a call, and what it leaves for later; `request` is None where there are many."""

    async def _after(self, before: Any) -> None:
        """The call went well."""

    async def _failed(self, before: Any, error: BaseException) -> None:
        """The call failed, or was broken off."""

    def _requests(self, requests: AsyncIterator[Any], method: str, context: Context) -> AsyncIterator[Any]:
        """The requests of a call of many, as its handler gets them."""
        return requests

    def _unary(self, handle: Any, method: str) -> Any:
        async def wrapped(request: Any, context: Context) -> Any:
            before = await self._before(method, request, context)
            try:
                answer = await handle(request, context)
            except BaseException as error:
                await self._failed(before, error)
                raise
            await self._after(before)
            return answer

        return wrapped

    def _stream(self, handle: Any, method: str) -> Any:
        async def wrapped(request: Any, context: Context) -> AsyncIterator[Any]:
            async with self._around(method, request, context):
                async for response in handle(request, context):
                    yield response

        return wrapped

    def _both(self, handle: Any, method: str) -> Any:
        async def wrapped(requests: AsyncIterator[Any], context: Context) -> AsyncIterator[Any]:
            async with self._around(method, None, context):
                async for response in handle(self._requests(requests, method, context), context):
                    yield response

        return wrapped

    @contextlib.asynccontextmanager
    async def _around(self, method: str, request: Any, context: Context) -> AsyncIterator[None]:
        """The same as around a unary call, where a context manager would cost as much as all the rest."""
        before = await self._before(method, request, context)
        try:
            yield
        except BaseException as error:
            await self._failed(before, error)
            raise
        await self._after(before)
