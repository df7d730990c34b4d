"""Failed TLS handshakes: each reason is named, with a remedy, for processes and for `ortoo doctor`."""

from pathlib import Path

import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from ortoo.client.admin.address_check import check_address
from ortoo.client.admin.doctor.findings import address_findings
from ortoo.common.errors import handshakes
from ortoo.common.errors.handshakes import HandshakeFailed
from ortoo.common.errors.status import rpc_errors
from ortoo.common.grpc.channels import Channels
from ortoo.common.grpc.server import GrpcServer
from ortoo.common.grpc.tls import TlsClient, TlsListener
from tests.integration.certificates import FAULTS, HOST, dated_certificates


@pytest.mark.parametrize("fault", FAULTS)
async def test_a_failed_handshake_names_its_reason(fault: str, tmp_path: Path) -> None:
    """The error of a call and the finding of the doctor have the same reason, and no other finding hides it."""
    authority, made = await dated_certificates(tmp_path)
    side, kind = fault.split(" ", 1)
    server_certificate = made.get(kind, made["good"]) if side == "server" else made["good"]
    client_certificate = made.get(kind, made["good"]) if side == "client" else made["good"]
    files = TlsClient(
        str(authority.ca_file), str(client_certificate.certificate_file), str(client_certificate.key_file)
    )
    listener = TlsListener(
        "127.0.0.1:0",
        str(server_certificate.certificate_file),
        str(server_certificate.key_file),
        str(authority.ca_file),
    )
    is_plain_server, is_plain_client = fault == "server in plaintext", fault == "client in plaintext"
    server = GrpcServer("127.0.0.1:0", []) if is_plain_server else GrpcServer("", [], tls=listener)
    async with server, Channels(tls=None if is_plain_client else files.credentials()) as channels:
        address = f"{HOST}:{(server.address or server.tls_address).rpartition(':')[2]}"
        stub = health_pb2_grpc.HealthStub(channels.channel_to(address))
        with pytest.raises(HandshakeFailed) as failed, rpc_errors("the peer", is_internal=True):
            await stub.Check(health_pb2.HealthCheckRequest(), timeout=30)
        assert failed.value.fault == FAULTS[fault]
        assert failed.value.retriable
        assert HOST not in failed.value.message  # clients may see it, and no address
        environ = {} if is_plain_client else {
            "ORTOO_TLS_CA_FILE": files.ca_file,
            "ORTOO_TLS_CERTIFICATE_FILE": files.certificate_file,
            "ORTOO_TLS_KEY_FILE": files.key_file,
        }  # fmt: skip
        checked = await check_address(address, environ, timeout_factor=20)
        [found] = address_findings(checked)
        if is_plain_client:
            assert found.name == "TLS"
        else:
            assert found.name == "TLS handshake failed"
            assert FAULTS[fault].observed in found.observed
            assert found.remedy == FAULTS[fault].remedy


def test_other_failures_are_not_handshakes() -> None:
    """A refused connection, and a connection that ends later."""
    for text in (
        "failed to connect to all addresses. Connection refused (111)",
        "Socket closed",
        "",
    ):
        assert handshakes.handshake_fault(text) is None
