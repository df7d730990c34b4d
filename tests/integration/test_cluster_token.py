"""With a cluster token, the ports of name servers and enodes are open to the cluster only."""

import asyncio
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

import grpc
import pytest

from ortoo.client import connect
from ortoo.common.grpc.cluster_token import ADMIN_TOKEN, CLUSTER_PROOF, WINDOW_S, ClusterToken
from ortoo.common.process.clock import SystemClock
from ortoo.v1 import enode_deferred_pb2, namesrv_pb2, replication_pb2
from ortoo.v1.enode_pb2_grpc import EnodeServiceStub
from ortoo.v1.namesrv_pb2_grpc import NameServiceStub
from ortoo.v1.replication_pb2_grpc import ReplicationServiceStub
from ortoo.verification.servers.cluster import open_cluster
from ortoo.verification.time.virtual_clock import VirtualClock
from tests.integration.enode_replicas import open_members
from tests.integration.health import until_ready

TOKEN, OTHER = "a-token-of-this-cluster", "a-token-of-another-one"


async def refused(call: Awaitable[Any]) -> str:
    """The error of a call that must be refused."""
    with pytest.raises(grpc.aio.AioRpcError) as error:
        await call
    assert error.value.code() is grpc.StatusCode.PERMISSION_DENIED
    return error.value.details() or ""


async def test_the_inner_ports_answer_the_cluster_alone(tmp_path: Path) -> None:
    """G16: without the token no client bypasses permissions at a name server, an enode or its log. Health is open."""
    for name, text in (("token", TOKEN), ("admin", "a-token-of-the-operators")):
        (tmp_path / name).write_text(text + "\n")
    own = {"cluster_token_file": str(tmp_path / "token")}
    admin = {"admin_token_file": str(tmp_path / "admin")}
    settings = {
        "namesrv": own | admin,
        "snode": own | admin,
        "enode": own,
    }
    proven = ClusterToken(TOKEN, SystemClock()).headers
    async with open_cluster(tmp_path, settings=settings) as cluster, asyncio.timeout(60):
        await cluster.create_topic("t", queues=1)
        async with connect(cluster.address) as client:
            assert not (await client.admin.describe_cluster()).inner_ports_open
        async with connect(cluster.address) as client, client.producer("t") as producer:
            assert (await producer.send(b"x")).offset == 0

        async with grpc.aio.insecure_channel(cluster.address_of("namesrv-0")) as channel:
            name_server = NameServiceStub(channel)
            put = namesrv_pb2.PutUserRequest(user=namesrv_pb2.User(access_key="me"), secret_key="s3cret")
            snode = namesrv_pb2.RegisterSnodeRequest(incarnation="i")
            snode.snode.name, snode.snode.address = "snode-1", "127.0.0.1:1"
            for call in (
                name_server.PutUser(put),
                name_server.RegisterSnode(snode),
                name_server.DeleteTopic(namesrv_pb2.DeleteTopicRequest(name="t")),
                name_server.WatchRoutes(namesrv_pb2.WatchRoutesRequest()).read(),
            ):
                assert "cluster_token_file" in await refused(call)
            request = namesrv_pb2.ListTopicsRequest()
            for proof in ("", "nonsense", f"{'9' * 40}.00", *_proofs(OTHER, "/ortoo.v1.NameService/ListTopics")):
                await refused(name_server.ListTopics(request, metadata=[(CLUSTER_PROOF, proof)]))
            another = proven("/ortoo.v1.NameService/DeleteTopic", None)
            await refused(name_server.ListTopics(request, metadata=another))
            listed = await name_server.ListTopics(request, metadata=proven("/ortoo.v1.NameService/ListTopics", None))
            assert [topic.name for topic in listed.topics] == ["t"]
            operator = [(ADMIN_TOKEN, "a-token-of-the-operators")]
            assert (await name_server.PutUser(put, metadata=operator)).user.access_key == "me"

        async with grpc.aio.insecure_channel(cluster.address_of("enode-0")) as channel:
            enode = EnodeServiceStub(channel)
            for inner in (
                enode.RecallDelayed(enode_deferred_pb2.RecallDelayedRequest()),
                enode.Append().read(),  # a request to a refused call would end it as cancelled, in gRPC
                enode.WatchHalves(enode_deferred_pb2.WatchHalvesRequest()).read(),
            ):
                await refused(inner)
            await until_ready(channel)
        async with (
            open_members(cluster, 1, name="enode-1", **own) as [member],
            grpc.aio.insecure_channel(member.replica_address) as channel,
        ):
            await refused(ReplicationServiceStub(channel).Exchange().read())
            await refused(ReplicationServiceStub(channel).Join(replication_pb2.JoinRequest()))
            await refused(ReplicationServiceStub(channel).CopyFrame(replication_pb2.CopyFrameRequest()))


def _proofs(token: str, path: str) -> list[str]:
    return [proof for _, proof in ClusterToken(token, SystemClock()).headers(path, None)]


def test_a_proof_is_good_for_some_minutes() -> None:
    """Either clock may be ahead; the refusal names both times."""
    clock = VirtualClock()
    token = ClusterToken(TOKEN, clock)
    [(_, proof)] = token.headers("/s/m", None)
    clock.advance(WINDOW_S)
    token.check("/s/m", proof)
    clock.advance(1.0)
    with pytest.raises(Exception, match=r"made at \d+ s .* clock shows \d+"):
        token.check("/s/m", proof)
