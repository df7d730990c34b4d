"""Gives names in calls of RocketMQ's protocol their namespace, before anybody looks at them."""

from collections.abc import AsyncIterator
from typing import Any

from ortoo.common.grpc.errors import Context
from ortoo.snode.rocketmq.protocol.caller import headers_of
from ortoo.snode.rocketmq.protocol.namespaces import let_out, taken_in
from ortoo.snode.rpc.around.access import Signed
from ortoo.snode.rpc.around.handler_wrapping import HandlerWrapping

HEADER = "x-mq-namespace"


class NamespaceWrapping(HandlerWrapping):
    """The outermost: rights, limits and handlers see whole names, clients their own."""

    services = ("/apache.rocketmq.v2.",)

    def _unary(self, handle: Any, method: str) -> Any:
        async def named(request: Any, context: Context) -> Any:
            namespace = taken_in(_request(request), _default(context))
            answer = await handle(request, context)
            if namespace:
                let_out(answer, namespace)
            return answer

        return named

    def _stream(self, handle: Any, method: str) -> Any:
        async def named(request: Any, context: Context) -> AsyncIterator[Any]:
            namespace = taken_in(_request(request), _default(context))
            async for answer in handle(request, context):
                if namespace:
                    let_out(answer, namespace)
                yield answer

        return named

    def _both(self, handle: Any, method: str) -> Any:
        async def named(requests: AsyncIterator[Any], context: Context) -> AsyncIterator[Any]:
            default = _default(context)
            met = [default]

            async def whole() -> AsyncIterator[Any]:
                async for request in requests:
                    met[0] = taken_in(request, default) or met[0]
                    yield request

            async for answer in handle(whole(), context):
                if met[0]:
                    let_out(answer, met[0])
                yield answer

        return named


def _request(request: Any) -> Any:
    return request.request if isinstance(request, Signed) else request


def _default(context: Context) -> str:
    """Some clients say the namespace of their group in the header alone."""
    return headers_of(context).get(HEADER, "")
