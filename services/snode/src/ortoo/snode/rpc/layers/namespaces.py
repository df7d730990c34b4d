"""Adds namespaces to names in calls of RocketMQ's protocol, before other layers see them."""

from typing import Any

from ortoo.common.grpc.layers.layer import Call, Layer
from ortoo.common.grpc.completion_queue.context import headers_of
from ortoo.snode.rocketmq.protocol.namespaces import let_out, taken_in

HEADER = "x-mq-namespace"


class Namespaces(Layer):
    """The first layer of a decoded request: rights, limits and handlers see full names, clients their own."""

    services = ("/apache.rocketmq.v2.",)

    def enter(self, call: Call) -> None:
        """Some clients send the namespace of their group only in the header."""
        default = headers_of(call.context).get(HEADER, "")
        call.kept[self] = default if call.method.takes_many else taken_in(call.request, default)

    def asked(self, call: Call, request: Any) -> None:
        """A request may have a namespace that no earlier one had."""
        default = headers_of(call.context).get(HEADER, "")
        call.kept[self] = taken_in(request, default) or call.kept[self]

    def answered(self, call: Call, answer: Any) -> Any:
        """Remove the namespace of the client from names."""
        if namespace := call.kept[self]:
            let_out(answer, namespace)
        return answer
