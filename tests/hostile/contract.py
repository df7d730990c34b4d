"""Every method of every service of ours, and of RocketMQ's protocol, from the generated code."""

from google.protobuf.descriptor import MethodDescriptor

from apache.rocketmq.v2 import admin_pb2, service_pb2
from ortoo.keda import externalscaler_pb2
from ortoo.v1 import (
    admin_pb2 as ortoo_admin_pb2,
)
from ortoo.v1 import (
    consumer_pb2,
    dead_letter_pb2,
    delivery_pb2,
    enode_pb2,
    enode_replicas_pb2,
    findings_pb2,
    namesrv_pb2,
    producer_pb2,
    replication_pb2,
    session_pb2,
    settings_pb2,
)

FILES = (
    *(admin_pb2, service_pb2, externalscaler_pb2, ortoo_admin_pb2, consumer_pb2, dead_letter_pb2, delivery_pb2),
    *(
        enode_replicas_pb2,
        enode_pb2,
        findings_pb2,
        replication_pb2,
        namesrv_pb2,
        producer_pb2,
        session_pb2,
        settings_pb2,
    ),
)
METHODS: list[MethodDescriptor] = [
    method for file in FILES for service in file.DESCRIPTOR.services_by_name.values() for method in service.methods
]


def path_of(method: MethodDescriptor) -> str:
    """The path of the method in gRPC."""
    return f"/{method.containing_service.full_name}/{method.name}"
