"""`ortoo-enode elect` asks name servers and replicas for a living set before a disk continues alone."""

from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest

from ortoo.common.errors import Conflict, Invalid
from ortoo.common.grpc.channels import Channels
from ortoo.common.grpc.server import GrpcServer
from ortoo.common.process.clock import SystemClock
from ortoo.common.process.randomness import Randomness
from ortoo.enode.disk.disk import RealDisk
from ortoo.enode.replication.membership import ReplicaMembership
from ortoo.enode.replication.protocol.identity import ReplicaId
from ortoo.enode.rpc.replicas.living_set import check_no_living_set
from ortoo.enode.rpc.replicas.service import NAME, ReplicaService
from ortoo.enode.settings import EnodeSettings
from ortoo.namesrv.app import open_namesrv
from ortoo.namesrv.settings import NamesrvSettings
from ortoo.v1 import replica_report_pb2 as pb
from ortoo.v1.namesrv_pb2_grpc import NameServiceStub
from ortoo.v1.replication_pb2_grpc import add_ReplicationServiceServicer_to_server
from ortoo.verification.servers.ports import free_address

OWN = ReplicaId(1, "disk-1")
UNREACHABLE = "127.0.0.1:9"
"""An address where no process listens."""


@pytest.fixture
async def namesrv(tmp_path: Path) -> AsyncIterator[str]:
    """The address of an empty name server."""
    chosen = NamesrvSettings(listen_address=free_address(), data_dir=tmp_path / "names")
    async with open_namesrv(chosen) as running:
        yield running.address


async def checked(namesrv: str, addresses: str = "") -> None:
    """Run the command's check."""
    settings = EnodeSettings(namesrv_address=namesrv, replica_addresses=addresses)
    await check_no_living_set("e", "the-set", OWN, settings, SystemClock())


async def report(
    stub: NameServiceStub, number: int, *, set_id: str = "the-set", address: str = UNREACHABLE, is_leaving: bool = False
) -> None:
    """Report a replica to the name server."""
    members = [pb.ReplicaId(number=one, disk=f"disk-{one}") for one in (1, 2, 3)]
    await stub.ReportReplica(
        pb.ReportReplicaRequest(
            enode="e",
            set_id=set_id,
            replica=members[number - 1],
            incarnation=1,
            address=address,
            replica_address=address,
            voters=members,
            is_leaving=is_leaving,
        )
    )


@pytest.mark.parametrize("number", [1, 2])
async def test_a_replica_of_the_set_that_answers_is_named(namesrv: str, tmp_path: Path, number: int) -> None:
    """Whether it is this number or another; processes of another set, and silent addresses, are no objection."""
    joining = ReplicaMembership(
        RealDisk(), _made(tmp_path / "other"), SystemClock(), Randomness(2), number=number, initial_voters=3
    )
    add = partial(add_ReplicationServiceServicer_to_server, ReplicaService("c", "e", joining))
    async with GrpcServer("127.0.0.1:0", [(NAME, add)]) as server:
        addresses = f"{UNREACHABLE};{server.address}"
        await checked(namesrv, addresses)
        await joining.join("the-set", 1)
        with pytest.raises(Conflict, match=f"answers at {server.address}.* --others-are-gone"):
            await checked(namesrv, addresses)
    await checked(namesrv, addresses)


@pytest.mark.parametrize("set_id", ["the-set", "elected-by-another-operator"])
async def test_a_set_that_only_the_name_server_knows_is_named(namesrv: str, set_id: str) -> None:
    """The addresses in the settings are outdated, but two replicas report to the name server."""
    async with Channels() as channels:
        stub = NameServiceStub(channels.channel_to(namesrv))
        await report(stub, 1, set_id=set_id)  # this disk itself is no other replica
        await checked(namesrv, UNREACHABLE)
        for number in (2, 3):
            await report(stub, number, set_id=set_id)
    with pytest.raises(Conflict, match=f"has live replicas 2, 3 of enode e, set {set_id}.* --others-are-gone"):
        await checked(namesrv, UNREACHABLE)


async def test_an_address_that_only_the_name_server_knows_is_asked(namesrv: str, tmp_path: Path) -> None:
    """A replica that no longer reports but answers at its last address is alive."""
    joining = ReplicaMembership(
        RealDisk(), _made(tmp_path / "other"), SystemClock(), Randomness(2), number=2, initial_voters=3
    )
    await joining.join("the-set", 1)
    add = partial(add_ReplicationServiceServicer_to_server, ReplicaService("c", "e", joining))
    async with GrpcServer("127.0.0.1:0", [(NAME, add)]) as server, Channels() as channels:
        stub = NameServiceStub(channels.channel_to(namesrv))
        await report(stub, 3)
        await report(stub, 2, address=server.address, is_leaving=True)
        await report(stub, 3, is_leaving=True)
        with pytest.raises(Conflict, match=f"answers at {server.address}"):
            await checked(namesrv)


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


async def test_without_a_name_server_that_answers_it_does_nothing() -> None:
    """The other replicas may be alive, so the check refuses and names the remedies."""
    with pytest.raises(Invalid, match=r"-c FILE, or ORTOO_ENODE_NAMESRV_ADDRESS.* --others-are-gone") as refused:
        await checked(UNREACHABLE, UNREACHABLE)
    assert refused.value.field == "namesrv_address"
