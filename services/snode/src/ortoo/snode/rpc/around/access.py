"""Lets through only what a user may; RocketMQ's clients are told in their own words."""

from typing import Any

from apache.rocketmq.v2 import service_pb2
from ortoo.common.errors import OrtooError
from ortoo.common.grpc.around.layers import Call, Layer
from ortoo.common.grpc.bulk_field import Bulky
from ortoo.snode.policy.access import Access, AccessOfCall
from ortoo.snode.policy.principal import PRINCIPAL
from ortoo.snode.rocketmq.protocol.caller import headers_of, peer_of
from ortoo.snode.rocketmq.protocol.codes import status_of
from ortoo.snode.rpc.around import OWN

SCALER = "/externalscaler."
WAITING = ("ConsumerService/Pop", "ConsumerService/Pull")
"""Methods of one answer that wait for messages: they end with the right to them, as streams do."""
_METHODS = service_pb2.DESCRIPTOR.services_by_name["MessagingService"].methods_by_name
_ANSWERS = {
    f"MessagingService/{name}": getattr(service_pb2, method.output_type.name) for name, method in _METHODS.items()
}


class Refusals(Layer):
    """Makes of errors within it the answer that says so in RocketMQ's protocol; ours has none."""

    services = OWN

    def leave(self, call: Call) -> None:
        """A call of one request is refused by its answer; a stream of them by the end of the call."""
        if isinstance(call.error, OrtooError) and not call.method.takes_many:
            call.answer = _refusal(call, call.error)
            if call.answer is not None:
                call.error = None


def _refusal(call: Call, error: OrtooError) -> Any:
    answer = _ANSWERS.get(call.method.name)
    return None if answer is None else answer(status=status_of(error))


class AccessLayer(Layer):
    """Asks for the access of every call, and of every request within a stream."""

    def __init__(self, access: Access, *, scaler_open: bool = False) -> None:
        """`scaler_open` leaves the autoscaler's interface to whoever asks."""
        self._access = access
        self.services = OWN if scaler_open else (*OWN, SCALER)

    async def enter(self, call: Call) -> None:
        """Learn who calls, and whether that user may. Errors: Forbidden, Unavailable, Invalid."""
        access = AccessOfCall(self._access, call.method.name, peer_of(call.context))
        try:
            await access.sign_in(headers_of(call.context), call.data)
        except OrtooError as error:
            if call.method.takes_many:
                call.answer = _refusal(call, error)  # and then the call ends
            raise
        PRINCIPAL.set(access.principal)  # gRPC runs each call in a task of its own
        if not call.method.takes_many:
            access.ask(call.request)
        if call.method.gives_many or call.method.name in WAITING:
            self._access.stream_begins(access, call.ender())
            call.kept[self] = access

    def asked(self, call: Call, request: Any) -> None:
        """Whether the user may that, too. Errors: Forbidden, Invalid."""
        call.kept[self].ask(request.message if isinstance(request, Bulky) else request)

    def answered(self, call: Call, answer: Any) -> Any:
        """Whether the user of a stream still may have what it asked for. Errors: Forbidden."""
        if (access := call.kept.get(self)) is not None:
            access.look_again()
        return answer

    def leave(self, call: Call) -> None:
        """Look at a stream that is over no more."""
        if (access := call.kept.get(self)) is not None:
            self._access.stream_ends(access)
