"""Lets through only what a user may; RocketMQ's clients are told in their own words."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from apache.rocketmq.v2 import service_pb2
from ortoo.common.errors import OrtooError
from ortoo.common.grpc.bulk_field import Bulky
from ortoo.common.grpc.errors import Context
from ortoo.snode.policy.access import Access, AccessOfCall
from ortoo.snode.policy.principal import PRINCIPAL
from ortoo.snode.rocketmq.protocol.caller import headers_of, peer_of
from ortoo.snode.rocketmq.protocol.codes import status_of
from ortoo.snode.rpc.around.handler_wrapping import OWN, HandlerWrapping

SCALER = "/externalscaler."
_METHODS = service_pb2.DESCRIPTOR.services_by_name["MessagingService"].methods_by_name
_ANSWERS = {
    f"MessagingService/{name}": getattr(service_pb2, method.output_type.name) for name, method in _METHODS.items()
}


@dataclass(frozen=True, slots=True)
class Signed:
    """A request, and the bytes that a signature may cover."""

    request: Any
    data: bytes


class AccessInterception(HandlerWrapping):
    """Asks for the access of every call, and of every request within a stream."""

    def __init__(self, access: Access, *, scaler_open: bool = False) -> None:
        """`scaler_open` leaves the autoscaler's interface to whoever asks."""
        self._access = access
        if not scaler_open:
            self.services = (*OWN, SCALER)

    def _read(self, read: Any) -> Any:
        return lambda data: Signed(read(data), data)

    async def _signed_in(self, method: str, context: Context, request: bytes | None = None) -> AccessOfCall:
        call = AccessOfCall(self._access, method, peer_of(context))
        await call.sign_in(headers_of(context), request)
        PRINCIPAL.set(call.principal)  # gRPC runs each call in a task of its own
        return call

    def _unary(self, handle: Any, method: str) -> Any:
        async def guarded(signed: Signed, context: Context) -> Any:
            try:
                (await self._signed_in(method, context, signed.data)).ask(signed.request)
            except OrtooError as error:
                return refusal(method, error)
            return await handle(signed.request, context)

        return guarded

    def _stream(self, handle: Any, method: str) -> Any:
        async def guarded(signed: Signed, context: Context) -> AsyncIterator[Any]:
            try:
                call = await self._signed_in(method, context, signed.data)
                call.ask(signed.request)
            except OrtooError as error:
                yield refusal(method, error)
                return
            with self._access.streaming(call):
                async for response in handle(signed.request, context):
                    call.look_again()
                    yield response

        return guarded

    def _both(self, handle: Any, method: str) -> Any:
        async def guarded(requests: AsyncIterator[Any], context: Context) -> AsyncIterator[Any]:
            try:
                call = await self._signed_in(method, context)
            except OrtooError as error:
                yield refusal(method, error)
                raise
            with self._access.streaming(call):
                async for response in handle(_asked(requests, call), context):
                    call.look_again()
                    yield response

        return guarded


async def _asked(requests: AsyncIterator[Any], call: AccessOfCall) -> AsyncIterator[Any]:
    async for request in requests:
        call.ask(request.message if isinstance(request, Bulky) else request)
        yield request


def refusal(method: str, error: OrtooError) -> Any:
    """The answer that says so in RocketMQ's protocol. Errors: `error` itself in ours."""
    answer = _ANSWERS.get(method)
    if answer is None:
        raise error
    return answer(status=status_of(error))
