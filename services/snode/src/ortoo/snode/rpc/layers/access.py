"""Checks signatures before a request is decoded, and permissions afterwards; converts errors for RocketMQ's clients."""

from collections.abc import Awaitable, Iterator
from contextlib import contextmanager
from typing import Any

from apache.rocketmq.v2 import service_pb2
from ortoo.common.errors import Forbidden, OrtooError
from ortoo.common.grpc.bulk_field import BulkMessage
from ortoo.common.grpc.layers.arrival import headers_of
from ortoo.common.grpc.layers.layer import Guard, Layer, ServedCall
from ortoo.common.grpc.signature import SignedCall
from ortoo.common.telemetry.call_metrics import report_status
from ortoo.snode.policy.access import AccessControl, Authentication, CallAccess
from ortoo.snode.policy.audit import AuditLog
from ortoo.snode.policy.principal import PRINCIPAL, Principal
from ortoo.snode.rocketmq.protocol.caller import peer_of
from ortoo.snode.rocketmq.protocol.codes import grpc_status_name, status_of
from ortoo.snode.rpc.layers import OWN_SERVICES

SCALER_SERVICE = "/externalscaler."
LONG_POLL_METHODS = ("ConsumerService/Pop", "ConsumerService/Pull")
"""Unary methods that wait for messages. Like streams, these calls end when their permission is lost."""
_SERVICE = service_pb2.DESCRIPTOR.services_by_name["MessagingService"]
_RESPONSES = {
    f"MessagingService/{name}": getattr(service_pb2, method.output_type.name)
    for name, method in _SERVICE.methods_by_name.items()
}


class RocketmqErrorLayer(Guard):
    """Converts errors to answers of RocketMQ's protocol. Ortoo's own protocol has the gRPC status instead."""

    services = OWN_SERVICES
    always_repeats = True

    def leave(self, call: ServedCall) -> None:
        """Replace the error of a call by an answer with its status, unless the call has a stream of requests."""
        if isinstance(call.error, OrtooError) and not call.method.is_request_stream:
            call.answer = _error_response(call, call.error)
            if call.answer is not None:
                call.error = None


def _error_response(call: ServedCall, error: OrtooError) -> Any:
    response_type = _RESPONSES.get(call.method.name)
    if response_type is None:
        return None
    report_status(grpc_status_name(error))
    return response_type(status=status_of(error))


@contextmanager
def _told_first(call: ServedCall) -> Iterator[None]:
    """Send an error in a stream of RocketMQ's protocol, before the stream ends."""
    try:
        yield
    except OrtooError as error:
        if call.method.is_request_stream:
            call.answer = _error_response(call, error)
        raise


class SignIn(Guard):
    """Authenticates calls of Ortoo's and RocketMQ's protocol, by the headers and the raw bytes of the request."""

    def __init__(self, access: AccessControl, *, scaler_open: bool = False) -> None:
        """`scaler_open` allows every caller to use the autoscaler's interface."""
        self._access = access
        self.services = OWN_SERVICES if scaler_open else (*OWN_SERVICES, SCALER_SERVICE)

    def enter(self, call: ServedCall) -> Awaitable[None] | None:
        """Check the signature of the call. Errors: Forbidden (field `authorization`), Unavailable."""
        access = call.kept[self] = CallAccess(self._access, call.method.name, peer_of(call.context))
        with _told_first(call):
            waiting = access.sign_in(headers_of(call.context), call.data)
        if waiting is not None:
            return self._enter_later(call, access, waiting)
        PRINCIPAL.set(access.principal)  # each call has a context of its own
        return None

    async def _enter_later(self, call: ServedCall, access: CallAccess, waiting: Awaitable[None]) -> None:
        with _told_first(call):
            await waiting
        PRINCIPAL.set(access.principal)


class RocketmqSignIn(Guard):
    """Authenticates RocketMQ's clients when no access rules are configured."""

    services = (f"/{_SERVICE.full_name}/",)

    def __init__(self, authentication: Authentication, audit: AuditLog) -> None:
        """Refused calls are recorded in `audit`."""
        self._authentication = authentication
        self._audit = audit

    def enter(self, call: ServedCall) -> Awaitable[None] | None:
        """Check the signature of the call. Errors: Forbidden (field `authorization`), Unavailable."""
        with self._refusing(call):
            found = self._authentication.authenticate(headers_of(call.context), SignedCall("", None))
        if not isinstance(found, tuple):
            return self._enter_later(call, found)
        _set_user(found[0])
        return None

    async def _enter_later(self, call: ServedCall, found: Awaitable[tuple[str, str]]) -> None:
        with self._refusing(call):
            user, _ = await found
        _set_user(user)

    @contextmanager
    def _refusing(self, call: ServedCall) -> Iterator[None]:
        """Record the refusal of a call."""
        with _told_first(call):
            try:
                yield
            except Forbidden as error:
                self._audit.record_refusal("", peer_of(call.context), call.method.name, error.message)
                raise


def _set_user(user: str) -> None:
    if PRINCIPAL.get().user != user:  # otherwise the rules of access have set the same user with its permissions
        PRINCIPAL.set(Principal(user, is_unrestricted=False))


class PermissionLayer(Layer):
    """Refuses calls, and requests within a stream, for which the user has no permission."""

    def __init__(self, access: AccessControl, sign_in: SignIn) -> None:
        """`sign_in` has the user of each call."""
        self._access = access
        self._sign_in = sign_in
        self.services = sign_in.services

    def enter(self, call: ServedCall) -> None:
        """Check the permissions that the call requires. Errors: Forbidden, Invalid."""
        access: CallAccess = call.kept[self._sign_in]
        if not call.method.is_request_stream:
            access.authorize(call.request)
        if call.method.is_response_stream or call.method.name in LONG_POLL_METHODS:
            self._access.add_stream(access, call.make_terminator())
            call.kept[self] = access

    def on_request(self, call: ServedCall, request: Any) -> None:
        """Check the permissions that the next request of a stream requires. Errors: Forbidden, Invalid."""
        call.kept[self._sign_in].authorize(request.message if isinstance(request, BulkMessage) else request)

    def on_response(self, call: ServedCall, answer: Any) -> Any:
        """Check that the user of a stream still has the permissions for the stream's requests. Errors: Forbidden."""
        if (access := call.kept.get(self)) is not None:
            access.recheck()
        return answer

    def leave(self, call: ServedCall) -> None:
        """Remove a stream that has ended from the registered streams."""
        if (access := call.kept.get(self)) is not None:
            self._access.remove_stream(access)
