"""With permissions in force and an inner port at which any caller could bypass them, roles do not start."""

import asyncio
from pathlib import Path
from typing import Any

import grpc
import pytest

from ortoo.common.cluster.addresses import is_loopback
from ortoo.common.errors import Conflict, Invalid
from ortoo.enode.settings import load as load_enode
from ortoo.namesrv.app import open_namesrv
from ortoo.namesrv.settings import NamesrvSettings
from ortoo.snode.settings import load
from ortoo.v1 import namesrv_pb2 as pb
from ortoo.v1.namesrv_pb2_grpc import NameServiceStub
from ortoo.verification.servers.ports import free_port

TLS = {f"tls_cluster_{name}": "127.0.0.1:0" for name in ("listen_address", "certificate_file", "key_file", "ca_file")}
PUT = pb.PutUserRequest(user=pb.User(access_key="ann"), secret_key="s3cret")


@pytest.mark.parametrize("closed", [{"cluster_token_file": "token"}, TLS, {"insecure": True}])
def test_a_snode_with_rights_and_open_inner_ports_is_refused(closed: dict[str, Any]) -> None:
    """The error names the settings that close the ports, and the one that accepts open ports."""
    for given in ({}, {"admin_token_file": "token"}):
        with pytest.raises(Invalid, match="cluster_token_file or mutual TLS") as refused:
            load({}, overrides={"access_file": "access.toml", **given})
        assert refused.value.field == "insecure"
        assert "insecure = true" in refused.value.message
    load({}, overrides={"access_file": "access.toml", **closed})
    load({})


async def started(folder: Path, **chosen: Any) -> str:
    """Start a name server that other machines reach, and put a user; return the error, or nothing."""
    port = free_port()
    settings = NamesrvSettings(listen_address=f"0.0.0.0:{port}", data_dir=folder, stop_grace_s=1.0, **chosen)
    settings.check()
    headers = [("x-ortoo-admin-token", "a-token-of-the-operators")]
    async with open_namesrv(settings), grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        try:
            await NameServiceStub(channel).PutUser(PUT, metadata=headers)
        except grpc.aio.AioRpcError as error:
            return f"{error.code().name}: {error.details()}"
        return ""


async def test_a_name_server_with_an_open_port_keeps_no_users(tmp_path: Path) -> None:
    """It refuses the first, and does not start over a database that has one, unless a token or a setting is given."""
    (tmp_path / "admin").write_text("a-token-of-the-operators")
    async with asyncio.timeout(60):
        refusal = await started(tmp_path)
        assert refusal.startswith("FAILED_PRECONDITION: ")
        assert "insecure = true" in refusal
        assert await started(tmp_path, admin_token_file=str(tmp_path / "admin")) == ""
        with pytest.raises(Conflict, match="could read the secrets") as refused:
            await started(tmp_path)
        assert refused.value.field == "insecure"
        assert await started(tmp_path, insecure=True) == ""


def test_names_of_roles_without_certificates_are_refused() -> None:
    """A setting without effect is an error, as is a name that no certificate can have."""
    with pytest.raises(Invalid, match="need mutual TLS") as refused:
        load_enode({"ORTOO_ENODE_ROLE_NAMES_SNODE": "snode.example"})
    assert refused.value.field == "role_names.snode"
    with pytest.raises(Invalid, match="expected a DNS name"):
        load_enode({"ORTOO_ENODE_ROLE_NAMES_SNODE": "snode example"}, overrides=TLS)
    given = load_enode({"ORTOO_ENODE_ROLE_NAMES_SNODE": "a.example;b.example"}, overrides=TLS)
    assert given.settings.role_names.snode == "a.example;b.example"


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("127.0.0.1:8071", True), ("127.1.2.3:8071", True), ("[::1]:8071", True), ("localhost:8071", True),
        ("0.0.0.0:8071", False), ("[::]:8071", False), ("10.0.0.1:8071", False), ("host:8071", False),
    ],
)  # fmt: skip
def test_loopback_is_known(address: str, expected: bool) -> None:
    """An unresolvable address counts as reachable."""
    assert is_loopback(address) is expected
