"""Adds namespaces to names in calls of RocketMQ's protocol, before other layers see them."""

from typing import Any

from ortoo.common.grpc.layers.arrival import RepeatCaller, headers_of
from ortoo.common.grpc.layers.layer import Layer, ServedCall
from ortoo.snode.rocketmq.protocol.namespaces import NAMESPACE_HEADER, add_namespace, remove_namespace


class NamespaceLayer(Layer):
    """Adds the namespace to names in requests, and removes it from names in answers.

    It is the first layer, so that permissions, limits and handlers receive full names.
    """

    services = ("/apache.rocketmq.v2.",)

    def repeat_key(self, caller: RepeatCaller) -> bytes:
        """The namespace of names without one."""
        return caller.headers.get(NAMESPACE_HEADER, "").encode()

    def enter(self, call: ServedCall) -> None:
        """Add the namespace to the names in the request; a header has the namespace if the request has none."""
        default = headers_of(call.context).get(NAMESPACE_HEADER, "")
        call.kept[self] = default if call.method.is_request_stream else add_namespace(call.request, default)

    def on_request(self, call: ServedCall, request: Any) -> None:
        """Add the namespace to the names in a request of a stream; a header has it if the request has none."""
        default = headers_of(call.context).get(NAMESPACE_HEADER, "")
        call.kept[self] = add_namespace(request, default) or call.kept[self]

    def on_response(self, call: ServedCall, answer: Any) -> Any:
        """Remove the client's namespace from the names in an answer."""
        if namespace := call.kept[self]:
            remove_namespace(answer, namespace)
        return answer
