"""Puts the interceptors around every call of the server."""

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc

from ortoo.common.bulk_field import Bulky
from ortoo.common.grpc_errors import Context
from ortoo.snode.interception import Call, Chain

OWN = ("/ortoo.v1.", "/apache.rocketmq.v2.")
"""Services whose calls are intercepted; health and reflection are not."""


class Interception(grpc.aio.ServerInterceptor):
    """Calls the chain before each call, after it, or when it failed; requests within Produce are calls as well."""

    def __init__(self, chain: Chain) -> None:
        self._chain = chain

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
        if handler.stream_stream:
            return grpc.stream_stream_rpc_method_handler(self._both(handler.stream_stream, method), *parts)
        return handler

    def _unary(self, handle: Any, method: str) -> Any:
        async def intercepted(request: Any, context: Context) -> Any:
            call = Call(method, request, context.peer())
            await self._chain.before(call)
            try:
                response = await handle(request, context)
            except BaseException as error:
                await self._chain.on_error(call, error)
                raise
            await self._chain.after(call)
            return response

        return intercepted

    def _stream(self, handle: Any, method: str) -> Any:
        async def intercepted(request: Any, context: Context) -> AsyncIterator[Any]:
            call = Call(method, request, context.peer())
            await self._chain.before(call)
            try:
                async for response in handle(request, context):
                    yield response
            except (Exception, asyncio.CancelledError, GeneratorExit) as error:
                await self._chain.on_error(call, error)
                raise
            await self._chain.after(call)

        return intercepted

    def _both(self, handle: Any, method: str) -> Any:
        each = method.endswith("/Produce")

        async def intercepted(requests: AsyncIterator[Any], context: Context) -> AsyncIterator[Any]:
            call = Call(method, None, context.peer())
            await self._chain.before(call)
            try:
                async for response in handle(self._each(requests, call) if each else requests, context):
                    yield response
            except (Exception, asyncio.CancelledError, GeneratorExit) as error:
                await self._chain.on_error(call, error)
                raise
            await self._chain.after(call)

        return intercepted

    async def _each(self, requests: AsyncIterator[Any], stream: Call) -> AsyncIterator[Any]:
        async for request in requests:
            message, bulks = request if isinstance(request, Bulky) else (request, ())
            call = dataclasses.replace(stream, request=message, bulk_bytes=sum(map(len, bulks)))
            await self._chain.before(call)
            yield request
            await self._chain.after(call)
