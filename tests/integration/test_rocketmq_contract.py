"""The protocol's names, numbers and types are those of the official package, compared descriptor by descriptor."""

import json
import subprocess
import sys
from typing import Any

DUMP = """
import importlib, json, sys
from google.protobuf import descriptor_pb2

found = {}

def message(one, path):
    entry = {}
    for field in one.field:
        of_oneof = field.HasField("oneof_index") and not field.proto3_optional
        entry[field.name] = [
            field.number, field.type, field.label, field.type_name, field.proto3_optional,
            one.oneof_decl[field.oneof_index].name if of_oneof else "",
        ]
    found[path] = entry
    for nested in one.nested_type:
        message(nested, path + "." + nested.name)
    for enum in one.enum_type:
        found[path + "." + enum.name] = {value.name: value.number for value in enum.value}

for name in sys.argv[1:]:
    file = descriptor_pb2.FileDescriptorProto()
    importlib.import_module(name).DESCRIPTOR.CopyToProto(file)
    for one in file.message_type:
        message(one, one.name)
    for enum in file.enum_type:
        found[enum.name] = {value.name: value.number for value in enum.value}
    for service in file.service:
        found["service " + service.name] = {
            call.name: [call.input_type, call.client_streaming, call.output_type, call.server_streaming]
            for call in service.method
        }
    found["package " + file.package] = {}
print(json.dumps(found))
"""


def described(*modules: str) -> dict[str, dict[str, Any]]:
    """All declarations of these modules, read in a separate process: two copies cannot share one."""
    done = subprocess.run([sys.executable, "-c", DUMP, *modules], capture_output=True, text=True, check=True)
    found: dict[str, dict[str, Any]] = json.loads(done.stdout)
    return found


def test_the_contract_is_the_official_one_field_by_field() -> None:
    """Every message, field, enum value and method of the official package is in ours, with equal numbers and types."""
    names = ("definition_pb2", "service_pb2", "admin_pb2")
    official = described(*(f"rocketmq.grpc_protocol.{name}" for name in names))
    ours = described(*(f"apache.rocketmq.v2.{name}" for name in names))
    assert len(official) > 80
    assert len(official["service MessagingService"]) == 17
    assert {name: fields for name, fields in ours.items() if name in official} == official
