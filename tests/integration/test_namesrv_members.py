"""Replicas report to name servers, which propose the leader: over SQLite and PostgreSQL, alone and two over one."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from structlog.testing import capture_logs

from ortoo.common.errors import Conflict, NotFound, OrtooError, Unavailable
from ortoo.common.errors.status import rpc_errors
from ortoo.namesrv import log_events
from ortoo.v1 import namesrv_pb2, topic_pb2
from ortoo.v1 import replica_admin_pb2 as admin_pb
from ortoo.v1 import replica_report_pb2 as pb
from ortoo.v1.namesrv_pb2_grpc import NameServiceStub
from ortoo.verification.servers.postgres import Postgres, postgres
from tests.integration.name_server import name_server

pytestmark = pytest.mark.asyncio(loop_scope="module")
KINDS = pytest.mark.parametrize("kind", ["sqlite", "postgresql"])


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def database() -> AsyncIterator[Postgres]:
    """One PostgreSQL for this file."""
    async with postgres() as server:
        yield server


@dataclass
class ThreeReplicas:
    """The replicas of a uniquely named enode, and their reports."""

    enode: str
    epoch: int = 0
    said: dict[int, dict[str, Any]] = field(default_factory=dict)

    def id(self, number: int) -> pb.ReplicaId:
        """The id of a replica and its disk."""
        return pb.ReplicaId(number=number, disk=f"disk-{number}")

    async def report(self, stub: NameServiceStub, number: int, **said: Any) -> pb.ReportReplicaResponse:
        """Report one replica. Errors: those of the name server."""
        request = pb.ReportReplicaRequest(
            enode=self.enode,
            set_id=f"set of {self.enode}",
            replica=self.id(number),
            incarnation=1,
            address=f"127.0.0.1:{number}",
            replica_address=f"127.0.0.1:{100 + number}",
            epoch=self.epoch,
            tail=pb.LogTail(epoch=1, position=1000 + number),
            is_electable=True,
            voters=map(self.id, (1, 2, 3)),
        )
        request.MergeFrom(pb.ReportReplicaRequest(**said))
        with rpc_errors("name server"):
            return await stub.ReportReplica(request, timeout=5)

    async def all_silent(self, stub: NameServiceStub, *, but: int = 0) -> pb.Proposal:
        """All replicas report that they reach no leader; return the last answer."""
        answers = [await self.report(stub, number, is_leader_silent=True) for number in (1, 2, 3) if number != but]
        return answers[-1].proposal


@KINDS
async def test_the_longest_log_is_proposed_and_a_higher_epoch_later(
    kind: str, tmp_path: Path, database: Postgres
) -> None:
    """Two of three suffice.

    After a restart of the name server the epochs keep growing; a higher reported epoch raises them.
    """
    url, members = database.url if kind == "postgresql" else "", ThreeReplicas("first")
    async with name_server(url, tmp_path) as stub:
        first = await members.all_silent(stub, but=1)
        assert (first.epoch, first.leader) == (1, members.id(3))
        again = await members.report(stub, 1)
        assert again.proposal == first
        assert {one.replica.number: one.replica_address for one in again.replicas} == {
            number: f"127.0.0.1:{100 + number}" for number in (1, 2, 3)
        }
    async with name_server(url, tmp_path) as stub:
        assert (await members.all_silent(stub)).epoch == 2
        members.epoch = 41
        assert (await members.all_silent(stub)).epoch == 42


@KINDS
async def test_two_that_decide_at_once_store_one(kind: str, tmp_path: Path, database: Postgres) -> None:
    """Many simultaneous reports at each name server lead to a single proposal; its epoch is one more."""
    members = ThreeReplicas("at-once")
    url = database.url if kind == "postgresql" else ""
    async with contextlib.AsyncExitStack() as opened:
        folders = ["a"] if kind == "sqlite" else ["a", "b"]
        stubs = [await opened.enter_async_context(name_server(url, tmp_path / folder)) for folder in folders]
        for stub in stubs:
            await asyncio.gather(*(members.report(stub, number) for number in (1, 2, 3)))
        answers = await asyncio.gather(
            *(members.report(stub, number, is_leader_silent=True) for stub in stubs * 3 for number in (1, 2, 3))
        )
        known = {answer.proposal.epoch for answer in answers if answer.HasField("proposal")}
        assert known == {1}
        for stub in stubs:
            async with asyncio.timeout(60):
                while (await members.report(stub, 1)).proposal.epoch != 1:
                    pass


async def test_a_hand_over_is_told_to_who_waits_for_it(tmp_path: Path) -> None:
    """A leader names its successor; the report of a replica that reaches no leader waits for that."""
    members = ThreeReplicas("handing", epoch=1)
    async with name_server("", tmp_path) as stub:
        for number in (1, 2, 3):
            await members.report(stub, number, is_leading=number == 1)
        waiting = asyncio.gather(members.report(stub, 2, is_leader_silent=True))
        asked = await members.report(stub, 1, suggested_leader=members.id(2), suggested_above_epoch=1)
        assert (asked.proposal.epoch, asked.proposal.leader) == (2, members.id(2))
        [answer] = await waiting
        assert answer.proposal in (asked.proposal, pb.Proposal())
        assert (
            await members.report(stub, 1, suggested_leader=members.id(2), suggested_above_epoch=1)
        ).proposal == asked.proposal


async def test_routes_name_the_leader_and_all_members(tmp_path: Path) -> None:
    """A newer epoch moves the enode's address; an unreachable follower is marked. Old epochs change nothing."""
    members = ThreeReplicas("routed", epoch=1)
    async with name_server("", tmp_path, replica_lease_s=4.0) as stub, asyncio.timeout(60):
        for number in (1, 2, 3):
            await members.report(stub, number, is_leading=number == 1)
        watch = stub.WatchRoutes(namesrv_pb2.WatchRoutesRequest())

        async def enode() -> topic_pb2.Enode:
            while True:
                news = await watch.read()
                assert isinstance(news, namesrv_pb2.WatchRoutesResponse)
                if news.enodes:
                    return news.enodes[0]

        told = await enode()
        assert (told.address, told.epoch, told.alive) == ("127.0.0.1:1", 1, True)
        assert [(one.number, one.state) for one in told.replicas] == [
            (1, topic_pb2.ENODE_REPLICA_STATE_LEADING),
            (2, topic_pb2.ENODE_REPLICA_STATE_FOLLOWING),
            (3, topic_pb2.ENODE_REPLICA_STATE_FOLLOWING),
        ]
        members.epoch = 2
        await members.report(stub, 2, is_leading=True)
        told = await enode()
        assert (told.address, told.epoch) == ("127.0.0.1:2", 2)
        old = topic_pb2.Enode(name="routed", address="127.0.0.1:1", store_id="set of routed", epoch=1)
        with pytest.raises(OrtooError, match="which has ended"), rpc_errors("name server"):
            await stub.RegisterEnode(namesrv_pb2.RegisterEnodeRequest(enode=old))
        await stub.Unregister(namesrv_pb2.UnregisterRequest(enode="routed", epoch=1))
        registered = topic_pb2.Enode(name="routed", address="127.0.0.1:2", store_id="set of routed", epoch=2)
        while {one.state for one in told.replicas if one.number == 3} != {topic_pb2.ENODE_REPLICA_STATE_AWAY}:
            await stub.RegisterEnode(namesrv_pb2.RegisterEnodeRequest(enode=registered))
            await members.report(stub, 1)
            await members.report(stub, 2, is_leading=True)
            told = await enode()
        assert (told.address, told.epoch, told.alive) == ("127.0.0.1:2", 2, True)
        watch.cancel()


async def test_members_are_listed_and_elected(tmp_path: Path) -> None:
    """An operator sees the lag of each replica, and elects a missing leader; otherwise the error names a remedy."""
    members = ThreeReplicas("listed", epoch=1)
    async with name_server("", tmp_path) as stub:
        with pytest.raises(NotFound), rpc_errors("name server"):
            await stub.ListReplicas(admin_pb.ListReplicasRequest(enode="listed"))
        await members.report(stub, 3, is_leading=True)
        await members.report(stub, 2)
        [listed] = (await stub.ListReplicas(admin_pb.ListReplicasRequest())).enodes
        assert (listed.enode, listed.leader, listed.majority) == ("listed", members.id(3), 2)
        assert [(one.replica.number, one.lag_bytes, one.HasField("lag_bytes")) for one in listed.replicas] == [
            (1, 0, False),
            (2, 1, True),
            (3, 0, True),
        ]
        chosen = admin_pb.ElectReplicaRequest(enode="listed", replica=pb.ReplicaId(number=2))
        with pytest.raises(Conflict, match="transfer leadership"), rpc_errors("name server"):
            await stub.ElectReplica(chosen)
        await members.report(stub, 1, is_leader_silent=True, tail=pb.LogTail(epoch=1, position=1000))
        await members.report(stub, 2, is_leader_silent=True)
        with pytest.raises(Conflict, match="elect replica 3"), rpc_errors("name server"):
            await stub.ElectReplica(chosen)
        await members.report(stub, 3, is_leaving=True)
        with rpc_errors("name server"), capture_logs() as lines:
            proposal = (await stub.ElectReplica(chosen)).proposal
        assert proposal.leader == members.id(2)
        [told] = [one for one in lines if one["event"] == log_events.LEADER_ELECTION_PROPOSED.name]
        assert (told["enode"], told["replica"]) == ("listed", 2)
        assert (await members.report(stub, 2)).proposal == proposal


async def test_a_database_that_is_away_delays_no_report_and_lets_nobody_take_over(
    tmp_path: Path, database: Postgres
) -> None:
    """Reports are answered from memory; when the database is back, a leader is proposed again."""
    members = ThreeReplicas("alone")
    async with name_server(database.url, tmp_path) as stub, asyncio.timeout(60):
        await members.report(stub, 1)
        await database.stop()
        with pytest.raises(Unavailable), rpc_errors("name server"):
            await stub.CreateTopic(namesrv_pb2.CreateTopicRequest(name="t", enodes=["e"]))
        for number in (1, 2, 3):
            answer = await members.report(stub, number, is_leader_silent=True)
            assert not answer.HasField("proposal")
        await database.start()
        while not (await members.all_silent(stub)).epoch:
            pass
