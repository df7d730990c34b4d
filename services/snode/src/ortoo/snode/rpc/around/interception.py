"""Puts the interceptors around every call of the server, and refuses calls in the clear where TLS is required."""

from collections.abc import AsyncIterator
from typing import Any

from ortoo.common.errors import Forbidden, OrtooError
from ortoo.common.grpc.bulk_field import Bulky
from ortoo.common.grpc.errors import Context
from ortoo.snode.policy.chain import Call, Chain
from ortoo.snode.rpc.around.access import refusal
from ortoo.snode.rpc.around.handler_wrapping import CallWrapping


class Interception(CallWrapping):
    """Calls the chain before each call, after it, or when it failed; requests within Produce are calls as well."""

    def __init__(self, chain: Chain) -> None:
        self._chain = chain

    def _unary(self, handle: Any, method: str) -> Any:
        wrapped = super()._unary(handle, method)

        async def told(request: Any, context: Context) -> Any:
            try:
                return await wrapped(request, context)
            except OrtooError as error:
                return refusal(method, error)

        return told

    def _stream(self, handle: Any, method: str) -> Any:
        wrapped = super()._stream(handle, method)

        async def told(request: Any, context: Context) -> AsyncIterator[Any]:
            try:
                async for response in wrapped(request, context):
                    yield response
            except OrtooError as error:
                yield refusal(method, error)

        return told

    async def _before(self, method: str, request: Any, context: Context) -> Call:
        call = Call(method, request, context.peer())
        await self._chain.before(call)
        return call

    async def _after(self, before: Call) -> None:
        await self._chain.after(before)

    async def _failed(self, before: Call, error: BaseException) -> None:
        await self._chain.on_error(before, error)

    def _requests(self, requests: AsyncIterator[Any], method: str, context: Context) -> AsyncIterator[Any]:
        return self._each(requests, method, context) if method.endswith("/Produce") else requests

    async def _each(self, requests: AsyncIterator[Any], method: str, context: Context) -> AsyncIterator[Any]:
        async for request in requests:
            message, bulks = request if isinstance(request, Bulky) else (request, ())
            call = Call(method, message, context.peer(), bulk_bytes=sum(map(len, bulks)))
            await self._chain.before(call)
            yield request
            await self._chain.after(call)


class TlsOnly(CallWrapping):
    """Lets through only what came by the port that speaks TLS; health, reflection and the autoscaler stay open."""

    async def _before(self, method: str, request: Any, context: Context) -> None:
        if b"ssl" not in context.auth_context().get("transport_security_type", ()):
            raise Forbidden(
                "use the port that speaks TLS, tls_listen_address: this one is closed", field="tls_required"
            )
