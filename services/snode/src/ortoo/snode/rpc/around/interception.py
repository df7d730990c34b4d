"""Puts the interceptors around every call of the server."""

import asyncio
import dataclasses
from collections.abc import AsyncIterator
from typing import Any

from ortoo.common.grpc.bulk_field import Bulky
from ortoo.common.grpc.errors import Context
from ortoo.snode.policy.chain import Call, Chain
from ortoo.snode.rpc.around.handler_wrapping import HandlerWrapping


class Interception(HandlerWrapping):
    """Calls the chain before each call, after it, or when it failed; requests within Produce are calls as well."""

    def __init__(self, chain: Chain) -> None:
        self._chain = chain

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
