"""Records the calls with which operators change something."""

from ortoo.common.errors import OrtooError
from ortoo.common.grpc.layers.layer import Layer, ServedCall
from ortoo.snode.policy.audit import OF_PRODUCERS, AuditLog, is_change, is_for_one_snode, target_of
from ortoo.snode.policy.principal import PRINCIPAL
from ortoo.snode.rocketmq.protocol.caller import peer_of


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
        caller = PRINCIPAL.get()
        by_admin = caller.is_unrestricted and bool(caller.user)
        if is_change(call.method.name, call.request, by_admin=by_admin):
            call.kept[self] = target_of(call.request), is_for_one_snode(call.request)

    def leave(self, call: ServedCall) -> None:
        """Add the entry."""
        target, for_one_snode = call.kept.get(self, (None, False))
        if target is not None and not (call.error and for_one_snode):
            error = call.error.message if isinstance(call.error, OrtooError) else str(call.error or "")
            self._audit.record_change(PRINCIPAL.get().user, peer_of(call.context), call.method.name, target, error)
