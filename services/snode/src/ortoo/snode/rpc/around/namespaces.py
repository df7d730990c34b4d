"""Gives names in calls of RocketMQ's protocol their namespace, before anybody looks at them."""

from typing import Any

from ortoo.common.grpc.around.layers import Call, Layer
from ortoo.snode.rocketmq.protocol.caller import headers_of
from ortoo.snode.rocketmq.protocol.namespaces import let_out, taken_in

HEADER = "x-mq-namespace"


class Namespaces(Layer):
    """The first layer that sees a decoded request: rights, limits and handlers see whole names, clients their own."""

    services = ("/apache.rocketmq.v2.",)

    def enter(self, call: Call) -> None:
        """Some clients say the namespace of their group in the header alone."""
        default = headers_of(call.context).get(HEADER, "")
        call.kept[self] = default if call.method.takes_many else taken_in(call.request, default)

    def asked(self, call: Call, request: Any) -> None:
        """A request may name a namespace that none before it did."""
        default = headers_of(call.context).get(HEADER, "")
        call.kept[self] = taken_in(request, default) or call.kept[self]

    def answered(self, call: Call, answer: Any) -> Any:
        """Names go out as the client knows them."""
        if namespace := call.kept[self]:
            let_out(answer, namespace)
        return answer
