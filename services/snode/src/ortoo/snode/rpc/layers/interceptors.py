"""Limits on calls, the interceptors of the settings, and the refusal of plaintext calls."""

from collections.abc import Awaitable
from typing import Any

from ortoo.common.errors import Forbidden
from ortoo.common.grpc.bulk_field import BulkMessage
from ortoo.common.grpc.layers.arrival import RepeatCaller
from ortoo.common.grpc.layers.layer import Guard, Layer, ServedCall
from ortoo.common.grpc.tls import is_tls
from ortoo.snode.policy.flow_control import DELAYED_METHODS, FlowControl
from ortoo.snode.policy.interceptors import InterceptedCall, InterceptorChain
from ortoo.snode.rpc.layers import OWN_SERVICES


class FlowControlLayer(Layer):
    """Refuses calls beyond the limits. A request within Produce counts as a call, and is delayed instead of refused."""

    services = OWN_SERVICES

    def __init__(self, flow: FlowControl) -> None:
        self._flow = flow

    def repeat_key(self, caller: RepeatCaller) -> bytes | None:
        """Nothing, unless there are limits, which count every call."""
        del caller
        return None if self._flow.rules else b""

    def enter(self, call: ServedCall) -> Awaitable[None] | None:
        """Apply the limits to the call. Errors: Overloaded."""
        return self._flow.admit(_describe_call(call, call.request)) if self._flow.rules else None

    def on_request(self, call: ServedCall, request: Any) -> Awaitable[None] | None:
        """Delay a request within Produce if it exceeds the limits."""
        is_limited = self._flow.rules and call.method.name in DELAYED_METHODS
        return self._flow.admit(_describe_call(call, request)) if is_limited else None


class InterceptorLayer(Layer):
    """Runs the interceptors before and after each call. Each request within Produce counts as a call."""

    services = OWN_SERVICES

    def __init__(self, interceptors: InterceptorChain) -> None:
        self._chain = interceptors

    async def enter(self, call: ServedCall) -> None:
        """Notify the interceptors that the call begins. Errors: those of the interceptors."""
        call.kept[self] = [await self._start(call, call.request)]

    async def on_request(self, call: ServedCall, request: Any) -> None:
        """Notify the interceptors that the previous request within Produce is done, and that the next one begins."""
        if call.method.name in DELAYED_METHODS:
            open_calls = call.kept[self]
            if len(open_calls) > 1:
                await self._chain.after(open_calls.pop())
            open_calls.append(await self._start(call, request))

    async def leave(self, call: ServedCall) -> None:
        """Notify the interceptors of the result of the call."""
        for one in reversed(call.kept[self]):
            if call.error is None:
                await self._chain.after(one)
            else:
                await self._chain.on_error(one, call.error)

    async def _start(self, call: ServedCall, request: Any) -> InterceptedCall:
        one = _describe_call(call, request)
        await self._chain.before(one)
        return one


def _describe_call(call: ServedCall, request: Any) -> InterceptedCall:
    message, bulks = request if isinstance(request, BulkMessage) else (request, ())
    return InterceptedCall(call.method.name, message, call.context.peer(), bulk_bytes=sum(map(len, bulks)))


class TlsRequiredLayer(Guard):
    """Refuses calls without TLS, except those of health checks, reflection and the autoscaler."""

    services = OWN_SERVICES

    def repeat_key(self, caller: RepeatCaller) -> bytes | None:
        """Nothing, if the call came with TLS."""
        return b"" if is_tls(caller.auth_context()) else None

    def enter(self, call: ServedCall) -> None:
        """Refuse the call if it came without TLS. Errors: Forbidden."""
        if not is_tls(call.context.auth_context()):
            raise Forbidden(
                "this port refuses plaintext calls; use the TLS port, tls_listen_address", field="tls_required"
            )
