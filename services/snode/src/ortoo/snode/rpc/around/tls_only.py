"""Refuses calls in the clear where TLS is required; health, reflection and the autoscaler's interface stay open."""

from collections.abc import AsyncIterator
from typing import Any

from ortoo.common.errors import Forbidden
from ortoo.common.grpc.errors import Context
from ortoo.snode.rpc.around.handler_wrapping import HandlerWrapping


class TlsOnly(HandlerWrapping):
    """Lets through only what came by the port that speaks TLS."""

    def _unary(self, handle: Any, method: str) -> Any:
        async def guarded(request: Any, context: Context) -> Any:
            _check(context)
            return await handle(request, context)

        return guarded

    def _stream(self, handle: Any, method: str) -> Any:
        async def guarded(given: Any, context: Context) -> AsyncIterator[Any]:
            _check(context)
            async for response in handle(given, context):
                yield response

        return guarded

    _both = _stream


def _check(context: Context) -> None:
    """Errors: Forbidden, when the connection is in the clear."""
    if b"ssl" not in context.auth_context().get("transport_security_type", ()):
        raise Forbidden("use the port that speaks TLS, tls_listen_address: this one is closed", field="tls_required")
