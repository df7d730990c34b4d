"""A digest of a message in eight digits that does not depend on the order of protobuf maps.

The order of the entries of a map on the wire follows from memory addresses, and so differs between processes.
"""

import zlib
from functools import cache

from google.protobuf.descriptor import Descriptor, MethodDescriptor

from apache.rocketmq.v2 import service_pb2
from ortoo.v1 import (
    admin_pb2,
    consumer_pb2,
    dead_letter_pb2,
    enode_pb2,
    namesrv_pb2,
    producer_pb2,
    replication_pb2,
    session_pb2,
)

_FILES = (
    admin_pb2, consumer_pb2, dead_letter_pb2, enode_pb2, replication_pb2, namesrv_pb2, producer_pb2, service_pb2,
    session_pb2,
)  # fmt: skip


def fingerprint(method: str, message: bytes) -> str:
    """The CRC of a message; of its bytes in sorted order if it may contain a map."""
    return f"{zlib.crc32(bytes(sorted(message)) if method in _methods_with_maps() else message):08x}"


@cache
def _methods_with_maps() -> frozenset[str]:
    """The paths of all methods whose messages contain maps."""
    return frozenset(
        f"/{method.containing_service.full_name}/{method.name}"
        for file in _FILES
        for service in file.DESCRIPTOR.services_by_name.values()
        for method in service.methods
        if _has_maps(method)
    )


def _has_maps(method: MethodDescriptor) -> bool:
    seen: dict[str, Descriptor] = {}
    waiting = [method.input_type, method.output_type]
    while waiting:
        message = waiting.pop()
        if message.GetOptions().map_entry:
            return True
        if message.full_name not in seen:
            seen[message.full_name] = message
            waiting += [field.message_type for field in message.fields if field.message_type is not None]
    return False
