"""Records the calls with which operators change something."""

from typing import Any

from ortoo.common.errors import OrtooError
from ortoo.common.grpc.layers.layer import Layer, ServedCall
from ortoo.snode.policy.audit import OF_PRODUCERS, AuditLog, is_change, is_for_one_snode, target_of
from ortoo.snode.policy.principal import PRINCIPAL
from ortoo.snode.rocketmq.protocol.caller import peer_of
from ortoo.v1 import enode_deferred_pb2, producer_pb2


def is_by_operator(request: Any) -> bool:
    """Whether the caller signed in as an admin, or the request is a verdict of an operator about a transaction."""
    caller = PRINCIPAL.get()
    is_admin = caller.is_unrestricted and bool(caller.user)
    return is_admin or (
        isinstance(request, producer_pb2.EndTransactionRequest)
        and request.source == enode_deferred_pb2.VERDICT_SOURCE_OPERATOR
    )


class AuditLayer(Layer):
    """Adds an entry for each change, when its call has ended."""

    services = (
        *("/ortoo.v1.AdminService/", "/ortoo.v1.DeadLetterService/", "/ortoo.v1.SettingsService/"),
        *(f"/ortoo.v1.ProducerService/{name}" for name in OF_PRODUCERS),
        *(f"/apache.rocketmq.v2.MessagingService/{name}" for name in OF_PRODUCERS),
    )

    def __init__(self, audit: AuditLog) -> None:
        self._audit = audit

    def enter(self, call: ServedCall) -> None:
        """Note what it concerns, because a handler may change the request."""
        if is_change(call.method.name, call.request, by_operator=is_by_operator(call.request)):
            call.kept[self] = target_of(call.request), is_for_one_snode(call.request)

    def leave(self, call: ServedCall) -> None:
        """Add the entry."""
        target, for_one_snode = call.kept.get(self, (None, False))
        if target is not None and not (call.error and for_one_snode):
            error = call.error.message if isinstance(call.error, OrtooError) else str(call.error or "")
            self._audit.record_change(PRINCIPAL.get().user, peer_of(call.context), call.method.name, target, error)
