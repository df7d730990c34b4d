"""Adds namespaces to names in calls of RocketMQ's protocol, before other layers see them."""

from typing import Any

from ortoo.common.grpc.completion_queue.context import headers_of
from ortoo.common.grpc.layers.layer import Layer, ServedCall
from ortoo.snode.rocketmq.protocol.namespaces import add_namespace, remove_namespace

HEADER = "x-mq-namespace"


class NamespaceLayer(Layer):
    """The first layer of a decoded request.

    It gives full names to permissions, limits and handlers, and names without the namespace to clients.
    """

    services = ("/apache.rocketmq.v2.",)

    def enter(self, call: ServedCall) -> None:
        """Add the namespace to the names of the request. Some clients send it only in the header."""
        default = headers_of(call.context).get(HEADER, "")
        call.kept[self] = default if call.method.is_request_stream else add_namespace(call.request, default)

    def on_request(self, call: ServedCall, request: Any) -> None:
        """Add the namespace to the names of one request of a stream. No earlier request may have had it."""
        default = headers_of(call.context).get(HEADER, "")
        call.kept[self] = add_namespace(request, default) or call.kept[self]

    def on_response(self, call: ServedCall, answer: Any) -> Any:
        """Remove the namespace of the client from names."""
        if namespace := call.kept[self]:
            remove_namespace(answer, namespace)
        return answer
