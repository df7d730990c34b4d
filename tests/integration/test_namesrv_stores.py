"""The registered store of an enode: it survives restarts of a name server, and is shared by all over one database."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from ortoo.common.cluster.refused import OTHER_STORE_FIELDS
from ortoo.common.errors import Conflict, Invalid, NotFound
from ortoo.common.errors.status import rpc_errors
from ortoo.v1 import namesrv_pb2, topic_pb2
from ortoo.v1 import replica_admin_pb2 as admin_pb
from ortoo.v1 import replica_report_pb2 as pb
from ortoo.v1.namesrv_pb2_grpc import NameServiceStub
from ortoo.verification.servers.postgres import postgres
from tests.integration.name_server import name_server


async def register(
    stub: NameServiceStub, store_id: str, *, made_from: str = "", log: tuple[int, int, int] | None = None
) -> None:
    """Register an enode once. `log` is its start, and the ends of its log. Errors: those of the name server."""
    enode = topic_pb2.Enode(name="e", address="h:1", store_id=store_id, made_from=made_from)
    reported = topic_pb2.EnodeLog(start=log[0], opened_end=log[1], durable_end=log[2]) if log else None
    with rpc_errors("name server"):
        await stub.RegisterEnode(namesrv_pb2.RegisterEnodeRequest(enode=enode, log=reported))


async def leave(stub: NameServiceStub) -> None:
    """Unregister: its lease ends."""
    await stub.Unregister(namesrv_pb2.UnregisterRequest(enode="e"))


async def accept(stub: NameServiceStub, store_id: str, enode: str = "e") -> str:
    """Accept a store as an operator; return the former store."""
    with rpc_errors("name server"):
        request = admin_pb.AcceptStoreRequest(enode=enode, store_id=store_id)
        return (await stub.AcceptStore(request)).former_store_id


async def report(stub: NameServiceStub, number: int, disk: str, voters: list[str], **said: object) -> None:
    """Send a replica's report; `voters` are number:disk."""
    ids = [pb.ReplicaId(number=int(one[0]), disk=one[2:]) for one in voters]
    request = pb.ReportReplicaRequest(
        enode="e",
        set_id="the-set",
        replica=pb.ReplicaId(number=number, disk=disk),
        incarnation=1,
        address="h:1",
        replica_address="h:2",
        voters=ids,
        **said,  # type: ignore[arg-type]
    )
    with rpc_errors("name server"):
        await stub.ReportReplica(request)


async def test_another_store_needs_an_operators_word_also_after_a_start(tmp_path: Path) -> None:
    """Refused before and after a restart of the name server; once accepted and present, it is the enode's.

    Accepting another store keeps the registered one until the other has registered.
    """
    async with name_server("", tmp_path) as stub:
        with pytest.raises(NotFound):
            await accept(stub, "second")
        await register(stub, "first")
        await leave(stub)
        with pytest.raises(Conflict, match="registered store first, and this process has store second"):
            await register(stub, "second")
    async with name_server("", tmp_path) as stub:
        with pytest.raises(Conflict, match="ortoo enode accept-store e second"):
            await register(stub, "second")
        with pytest.raises(Invalid, match="already"):
            await accept(stub, "first")
        for wrong in ("second", "of-no-enode"):
            assert await accept(stub, wrong) == "first"
        assert await accept(stub, "first") == "first"
        with pytest.raises(Conflict, match="registered store first"):
            await register(stub, "second")
        assert await accept(stub, "second") == "first"
    async with name_server("", tmp_path) as stub:
        await register(stub, "first")
        await leave(stub)
        await register(stub, "second")
        await leave(stub)
    async with name_server("", tmp_path) as stub:
        with pytest.raises(Conflict, match="registered store second"):
            await register(stub, "first")
        await register(stub, "second")


async def test_a_store_that_was_made_of_the_known_one_needs_no_word(tmp_path: Path) -> None:
    """For example a restored backup. It is refused while its origin is alive; from then on the origin is refused."""
    async with name_server("", tmp_path) as stub:
        await register(stub, "first")
        with pytest.raises(Conflict, match="is alive at") as refused:
            await register(stub, "restored", made_from="first")
        assert refused.value.field not in OTHER_STORE_FIELDS
        with pytest.raises(Conflict, match="is alive at") as refused:
            await register(stub, "another")
        assert refused.value.field in OTHER_STORE_FIELDS
        await leave(stub)
        await register(stub, "restored", made_from="first")
        await leave(stub)
        with pytest.raises(Conflict, match="registered store restored"):
            await register(stub, "first")


async def test_a_log_that_was_longer_is_refused_also_after_a_start(tmp_path: Path) -> None:
    """Each start of the enode is another one. An older version reports no log, and a restored store has another one."""
    async with name_server("", tmp_path) as stub:
        await register(stub, "first")
        await register(stub, "first", log=(7, 0, 1_000))
        await register(stub, "first", log=(8, 1_000, 1_064))
    async with name_server("", tmp_path) as stub:
        for start in (7, 9):
            with pytest.raises(Conflict, match="older copy") as refused:
                await register(stub, "first", log=(start, 1_000, 2_000))
            assert refused.value.field in OTHER_STORE_FIELDS
        with pytest.raises(Invalid):
            await register(stub, "first", log=(1 << 63, 1_000, 2_000))
        await register(stub, "first")
        await register(stub, "first", log=(8, 1_000, 2_000))
        await leave(stub)
        await register(stub, "restored", made_from="first", log=(10, 64, 64))
        await register(stub, "restored", log=(11, 64, 128))


@pytest.fixture
async def two(tmp_path: Path) -> AsyncIterator[list[NameServiceStub]]:
    """Two name servers over one PostgreSQL."""
    async with postgres() as database, contextlib.AsyncExitStack() as opened:
        yield [
            await opened.enter_async_context(name_server(database.url, tmp_path / one, sync_interval_s=0.05))
            for one in ("a", "b")
        ]


async def test_what_one_name_server_accepts_all_accept(two: list[NameServiceStub]) -> None:
    """Of two first stores of a name, registered at both at once, one is the enode's; an acceptance applies to both."""
    told = await asyncio.gather(register(two[0], "x"), register(two[1], "y"), return_exceptions=True)
    assert sorted(type(one).__name__ for one in told) == ["Conflict", "NoneType"]
    first, second = ("x", "y") if told[0] is None else ("y", "x")
    for stub in two:
        await leave(stub)
        with pytest.raises(Conflict, match=f"registered store {first}"):
            await register(stub, second)
    assert await accept(two[0], second) == first
    async with asyncio.timeout(60):
        while True:
            with contextlib.suppress(Conflict):
                await register(two[1], second)
                break


async def test_a_log_end_that_one_name_server_knows_counts_at_all(two: list[NameServiceStub]) -> None:
    """The other one learns it from the database, at the latest when it would store a shorter log."""
    for stub in two:
        await register(stub, "first", log=(7, 0, 100))
    await register(two[0], "first", log=(8, 1_000, 1_000))
    for stub in (two[1], two[0]):
        with pytest.raises(Conflict, match="durable up to position 1000"):
            await register(stub, "first", log=(9, 200, 200))
    for stub in two:
        await register(stub, "first", log=(10, 1_000, 1_000))


async def test_a_set_without_any_known_replica_is_refused_also_after_a_start(tmp_path: Path) -> None:
    """It has the set's id and the higher epoch.

    The real set is shown as away meanwhile, and keeps its leader afterwards.
    """
    voters = ["1:a", "2:b", "3:c"]
    async with name_server("", tmp_path, replica_lease_s=0.2) as stub:
        for number, disk in enumerate("abc", 1):
            await report(stub, number, disk, voters, is_leading=number == 2, epoch=2)
        async with asyncio.timeout(60):
            while not await all_away(stub):
                pass
    for _ in range(2):
        async with name_server("", tmp_path) as stub:
            with pytest.raises(Conflict, match="is none of them"):
                await report(stub, 1, "new", ["1:new"], is_leading=True, epoch=9)
            await report(stub, 2, "b", voters, is_leading=True, epoch=3)
            [found] = (await stub.ListReplicas(admin_pb.ListReplicasRequest(enode="e"))).enodes
            assert (found.leader.number, found.leader.disk) == (2, "b")


async def all_away(stub: NameServiceStub) -> bool:
    """Whether all three replicas are shown as away."""
    [found] = (await stub.ListReplicas(admin_pb.ListReplicasRequest(enode="e"))).enodes
    return [one.state for one in found.replicas] == [topic_pb2.ENODE_REPLICA_STATE_AWAY] * 3
