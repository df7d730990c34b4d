"""Certificates of a port at gRPC, and its log lines about clients without TLS."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from ortoo.common.cluster.service_settings import ServiceSettings
from ortoo.common.errors import Invalid
from ortoo.common.grpc.cluster_token import cluster_channels
from ortoo.common.grpc.server import GrpcServer
from ortoo.common.grpc.tls import TlsListener, cluster_credentials, cluster_listener, make_self_signed_certificate
from ortoo.verification.forks.spawning import outcome

pytestmark = pytest.mark.usefixtures("each_transport")

STRANGERS = """
import asyncio
from ortoo.common.grpc.server import GrpcServer
from ortoo.common.grpc.tls import TlsListener

async def main():
    async with GrpcServer("", [], tls=TlsListener("127.0.0.1:0", "", "")) as server:
        for _ in range(20):
            reader, writer = await asyncio.open_connection(*server.tls_address.split(":"))
            writer.write(b"in clear text" * 10)
            await reader.read()
            writer.close()

asyncio.run(main())
"""


@pytest.mark.parametrize("damaged", ["another certificate", "another key", "no certificate", "no root"])
async def test_files_that_do_not_belong_together_change_nothing(damaged: str, tmp_path: Path) -> None:
    """Ports and calls keep the old certificate while only one of the two new files is written, or one is damaged."""
    old, new = make_self_signed_certificate(("localhost",)), make_self_signed_certificate(("localhost",))
    certificate, key, roots = (tmp_path / name for name in ("a.pem", "a.key", "ca.pem"))
    for file, text in ((certificate, old[0]), (key, old[1]), (roots, old[0])):
        file.write_bytes(text)
    settings = ServiceSettings(
        tls_cluster_listen_address="127.0.0.1:0",
        tls_cluster_certificate_file=str(certificate),
        tls_cluster_key_file=str(key),
        tls_cluster_ca_file=str(roots),
        tls_cluster_name="localhost",
    )
    async with (
        GrpcServer("", [], cluster_tls=cluster_listener(settings)) as server,
        cluster_channels(settings, None) as channels,
    ):
        health = health_pb2_grpc.HealthStub(channels.channel_to(server.cluster_address))
        await health.Check(health_pb2.HealthCheckRequest(), timeout=10)
        nonsense = b"-----BEGIN CERTIFICATE-----\nnonsense\n-----END CERTIFICATE-----\n"
        match damaged:
            case "another certificate":
                certificate.write_bytes(new[0])
            case "another key":
                key.write_bytes(new[1])
            case "no certificate":
                certificate.write_bytes(nonsense)
            case _:
                roots.write_bytes(nonsense)
        await channels.renew()
        await health.Check(health_pb2.HealthCheckRequest(), timeout=10)
        with pytest.raises(Invalid) as refused:
            cluster_credentials(settings)
        what = "ca" if damaged == "no root" else "certificate"
        assert refused.value.field == f"tls_cluster_{what}_file"


def test_a_certificate_is_given_to_grpc_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """None is returned without a new certificate, because a configuration per handshake could crash the process."""
    fetchers: list[Callable[[], object]] = []

    def taken(first: object, newest: Callable[[], object], _: bool) -> object:
        fetchers.append(newest)
        return first

    monkeypatch.setattr(grpc, "dynamic_ssl_server_credentials", taken)
    files = tmp_path / "a.pem", tmp_path / "a.key"

    def renew() -> None:
        for file, text in zip(files, make_self_signed_certificate(("localhost",)), strict=True):
            file.with_suffix(".new").write_bytes(text)
            file.with_suffix(".new").replace(file)

    renew()
    given: list[Any] = [TlsListener("127.0.0.1:0", str(files[0]), str(files[1])).credentials()]
    [newest] = fetchers
    assert [newest(), newest()] == [None, None]
    for _ in range(2):
        renew()
        given.append(newest())
        assert newest() is None
    assert len({id(one) for one in given}) == 3
    assert all(isinstance(one, grpc.ServerCertificateConfiguration) for one in given)
    files[0].write_bytes(b"nonsense")
    assert newest() is None


async def test_strangers_write_nothing_into_the_log() -> None:
    """Failed handshakes are not logged, because any client could fill the disk with them."""
    code, _, error = await outcome(sys.executable, "-c", STRANGERS)
    assert (code, error.count("\n")) == (0, 1), error
    assert "development_certificate_used" in error
