"""RocketMQ's namespaces: topic `t` of namespace `ns` is Ortoo's topic `ns%t`, as RocketMQ's classic clients write it.

  add_namespace(request, "ns")      # t becomes ns%t, %RETRY%g becomes %RETRY%ns%g, wherever a request has a name
  remove_namespace(answer, "ns")    # the reverse

So two tenants with the same topic names share nothing. Native clients and operators see the full name.
"""

from functools import cache
from typing import Any

from google.protobuf.descriptor import Descriptor
from google.protobuf.message import Message

from apache.rocketmq.v2.definition_pb2 import Resource
from ortoo.common.groups.group_topics import DEAD_LETTER_PREFIX, RETRY_PREFIX
from ortoo.common.grpc.messages import is_repeated

SEPARATOR = "%"
NAMESPACE_HEADER = "x-mq-namespace"
"""The header with the namespace of names without one."""
_RESOURCE = Resource.DESCRIPTOR.full_name
Fields = tuple[tuple[str, bool, "Fields | None"], ...]
"""The fields that contain a topic or group: name, whether it is repeated, and the fields of its messages.

They are None for a field that is itself a topic or group.
"""


def add_namespace(request: Message, default: str) -> str:
    """Add the namespace to the name of each topic and group in a request.

    A topic or group without a namespace gets `default`. Returns the namespace that was added last; empty if none was
    added.
    """
    found_namespace = ""
    for one in resources_in(request):
        namespace = one.resource_namespace or default
        if namespace and one.name:
            found_namespace = namespace
            prefix, bare = _parts(one.name)
            if not bare.startswith(namespace + SEPARATOR):
                one.name = f"{prefix}{namespace}{SEPARATOR}{bare}"
    return found_namespace


def remove_namespace(response: Message, namespace: str) -> None:
    """Remove `namespace` from the names of the topics and groups in an answer."""
    for one in resources_in(response):
        prefix, bare = _parts(one.name)
        if bare.startswith(namespace + SEPARATOR):
            one.name = prefix + bare.removeprefix(namespace + SEPARATOR)


def resources_in(message: Message) -> list[Any]:
    """Every topic and group in a message."""
    resources: list[Any] = []
    _collect(message, _fields(message.DESCRIPTOR), resources)
    return resources


def _collect(message: Message, fields: Fields, resources: list[Any]) -> None:
    for name, holds_many, inner in fields:
        if holds_many:
            found = getattr(message, name)
        elif message.HasField(name):
            found = (getattr(message, name),)
        else:
            continue
        if inner is None:
            resources += found
        else:
            for one in found:
                _collect(one, inner, resources)


def _parts(name: str) -> tuple[str, str]:
    """Divide a name into the prefix of a group's retry or dead-letter topic, which may be empty, and the rest."""
    for prefix in (RETRY_PREFIX, DEAD_LETTER_PREFIX):
        if name.startswith(prefix):
            return prefix, name.removeprefix(prefix)
    return "", name


@cache
def _fields(descriptor: Descriptor) -> Fields:
    return tuple(
        (field.name, is_repeated(field), None if field.message_type.full_name == _RESOURCE else inner)
        for field in descriptor.fields
        if field.message_type is not None
        and not field.message_type.GetOptions().map_entry
        and ((inner := _fields(field.message_type)) or field.message_type.full_name == _RESOURCE)
    )
