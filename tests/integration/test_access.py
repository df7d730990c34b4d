"""Access control for clients of both protocols."""

import asyncio
import contextlib
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from apache.rocketmq.v2 import definition_pb2 as d
from apache.rocketmq.v2 import service_pb2 as s
from apache.rocketmq.v2.service_pb2_grpc import MessagingServiceStub
from ortoo.client import Client, ConsumerSettings, Forbidden, OrtooError, Queue, connect
from ortoo.client.core.bidi_stream import BidiStream
from ortoo.common.grpc.cluster_token import ADMIN_TOKEN
from ortoo.common.process.clock import SystemClock
from ortoo.snode.policy import access
from ortoo.v1 import consumer_pb2, namesrv_pb2
from ortoo.v1.admin_pb2_grpc import AdminServiceStub
from ortoo.v1.consumer_pb2_grpc import ConsumerServiceStub
from ortoo.v1.session_pb2 import ConnectRequest, ConnectResponse
from ortoo.v1.session_pb2_grpc import SessionServiceStub
from ortoo.verification.servers.cluster import open_cluster
from ortoo.verification.servers.ports import free_ports
from ortoo.verification.servers.scrape import scraped
from tests.integration.guarded_cluster import RULES, as_user, guarded, signed


async def send(mq: Client, topic: str = "t") -> None:
    """Send one message."""
    async with mq.producer(topic) as producer:
        await producer.send(b"x")


async def test_who_does_not_sign_may_nothing(tmp_path: Path) -> None:
    """E-247: no signature, a wrong one, and an unknown user are refused, in every kind of call."""
    async with guarded(tmp_path) as cluster, asyncio.timeout(60):
        for mq_of in (
            connect(cluster.address),
            as_user(cluster, "shop", "guess1"),
            as_user(cluster, "unknown"),
            as_user(cluster, "nobody"),
        ):
            async with mq_of as mq:
                with pytest.raises(Forbidden):
                    await mq.admin.list_topics()
                with pytest.raises(Forbidden):
                    await send(mq)
                with pytest.raises(Forbidden):
                    async for _ in mq.fetch(Queue("t", "enode-0", 0)):
                        pass
                async with mq.consumer("g", ["t"]) as consumer:
                    with pytest.raises(Forbidden):
                        await anext(aiter(consumer))


async def test_refusals_of_many_streams_all_reach_their_callers(tmp_path: Path) -> None:
    """A snode may refuse a stream while the client writes to it. No refusal may look like a broken connection."""

    async def outcome(channel: grpc.aio.Channel) -> OrtooError | None:
        stream: BidiStream[ConnectRequest, ConnectResponse] = BidiStream(
            "snode", lambda _: False, lambda: None, clock=SystemClock()
        )
        for _ in range(4):
            stream.send(ConnectRequest(heartbeat=consumer_pb2.Heartbeat()))
        try:
            await stream.run(SessionServiceStub(channel).Connect())
        except OrtooError as error:
            return error
        return None

    async with (
        guarded(tmp_path) as cluster,
        asyncio.timeout(60),
        grpc.aio.insecure_channel(cluster.address) as channel,
    ):
        outcomes = [one for _ in range(20) for one in await asyncio.gather(*(outcome(channel) for _ in range(20)))]
        assert {type(one) for one in outcomes} == {Forbidden}


async def test_health_and_reflection_need_no_signature(tmp_path: Path) -> None:
    """Another call without a signature is refused, and counted in `ortoo_access_refused_total`."""
    [port] = free_ports(1)
    address = f"127.0.0.1:{port}"
    async with guarded(tmp_path, metrics_address=address) as cluster, asyncio.timeout(60):
        channel = cluster.channels.channel_to(cluster.address)
        health = await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest())
        assert health.status == health_pb2.HealthCheckResponse.SERVING
        reflection = reflection_pb2_grpc.ServerReflectionStub(channel).ServerReflectionInfo(
            iter([reflection_pb2.ServerReflectionRequest(list_services="")])
        )
        assert (await reflection.read()).list_services_response.service
        before = (await scraped(address))["ortoo_access_refused_total"][()]
        with pytest.raises(grpc.aio.AioRpcError):
            await AdminServiceStub(channel).ListTopics(namesrv_pb2.ListTopicsRequest())
        after = await scraped(address)
        assert after["ortoo_access_refused_total"][()] == before + 1
        assert after["ortoo_access_users"][()] == (tmp_path / "access.toml").read_text().count("[[user]]")


async def test_keys_of_handles_need_the_admin_token(tmp_path: Path) -> None:
    """Snodes always request routes with these keys, so a snode without the token gets none and does not get ready."""
    (tmp_path / "token").write_text("a-token-of-this-cluster\n")
    settings = {"namesrv": {"admin_token_file": str(tmp_path / "token")}}
    async with open_cluster(tmp_path, snodes=0, settings=settings) as cluster, asyncio.timeout(60):
        request = namesrv_pb2.WatchRoutesRequest(include_handle_keys=True)
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await cluster.name_service.WatchRoutes(request).read()
        assert refused.value.code() is grpc.StatusCode.PERMISSION_DENIED
        proven = cluster.name_service.WatchRoutes(request, metadata=[(ADMIN_TOKEN, "a-token-of-this-cluster")])
        assert await proven.read() is not grpc.aio.EOF


async def test_users_go_on_while_no_name_server_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Users that the snode knows can send and receive, also when their secret is due for a refresh; a new one waits."""
    monkeypatch.setattr(access, "SECRET_TTL_S", 0.0)
    async with guarded(tmp_path) as cluster, asyncio.timeout(60):
        stub = ConsumerServiceStub(cluster.channels.channel_to(cluster.address))
        request = consumer_pb2.QueryQueuesRequest(topic="t")
        async with as_user(cluster, "shop") as shop:
            await send(shop)
            await cluster.close("namesrv-0")
            await send(shop)
            found = [batch.first_offset async for batch in shop.fetch(Queue("t", "enode-0", 0), 0, 2)]
            assert found[0] == 0
            assert (await stub.QueryQueues(request, metadata=signed(cluster, "shop"))).queues[0].end_offset == 2
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await stub.QueryQueues(request, metadata=signed(cluster, "shop", "guess1"))
        assert refused.value.code() is grpc.StatusCode.PERMISSION_DENIED
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await stub.QueryQueues(request, metadata=signed(cluster, "reader"))
        assert refused.value.code() is grpc.StatusCode.UNAVAILABLE


async def test_users_may_what_the_rules_say(tmp_path: Path) -> None:
    """E-247: a receiver cannot send, a denied group cannot consume in any way. Operators' calls need an admin."""
    async with guarded(tmp_path) as cluster, asyncio.timeout(90):
        async with as_user(cluster, "shop") as shop:
            await send(shop)
            with pytest.raises(Forbidden, match="no PUB for topic 'u'"):
                await send(shop, "u")
            settings = ConsumerSettings(from_beginning=True)
            async with shop.consumer("g", ["t"], settings) as consumer:
                message = await anext(aiter(consumer))
                assert message.body == b"x"
            queue = Queue("t", "enode-0", 0)
            async with shop.pull_consumer("closed") as denied:
                with pytest.raises(Forbidden, match="'closed'"):
                    await denied.pull(queue, 0)
            async with shop.pop_consumer("closed", "t") as denied_pop:
                with pytest.raises(Forbidden, match="'closed'"):
                    await denied_pop.pop(1, 0)
            async with shop.consumer("closed", ["t"], settings) as denied_push:
                with pytest.raises(Forbidden, match="'closed'"):
                    await anext(aiter(denied_push))
            for refused in (shop.admin.create_topic("mine"), shop.admin.delete_topic("t"), shop.admin.list_groups()):
                with pytest.raises(Forbidden, match="not an admin"):
                    await refused
        async with as_user(cluster, "reader") as reader:
            with pytest.raises(Forbidden, match="no PUB"):
                await send(reader)
            assert [batch.first_offset async for batch in reader.fetch(queue, 0)] == [0]
        async with as_user(cluster, "ann") as ann:
            await ann.admin.create_topic("mine", queue_count=1)
            await send(ann, "mine")


async def test_rocketmqs_clients_hear_it_in_their_own_words(tmp_path: Path) -> None:
    """E-247: the status is UNAUTHORIZED or FORBIDDEN. Both ways to pull check the permission for the group."""
    async with guarded(tmp_path) as cluster, asyncio.timeout(60), grpc.aio.insecure_channel(cluster.address) as channel:
        stub = MessagingServiceStub(channel)
        who = (("x-mq-client-id", "c"),)
        reader = (*who, *signed(cluster, "reader"))
        send_ = s.SendMessageRequest(
            messages=[
                d.Message(topic=d.Resource(name="t"), body=b"x", system_properties=d.SystemProperties(message_id="i"))
            ]
        )
        assert (await stub.SendMessage(send_, metadata=who)).status.code == d.UNAUTHORIZED
        assert (await stub.SendMessage(send_, metadata=reader)).status.code == d.FORBIDDEN
        place = d.MessageQueue(topic=d.Resource(name="t"), id=0, broker=d.Broker(name="enode-0"))

        async def first(method: str, group: str, **fields: Any) -> int:
            request = getattr(s, f"{method}Request")(group=d.Resource(name=group), message_queue=place, **fields)
            frames = [frame async for frame in getattr(stub, method)(request, metadata=reader, timeout=20)]
            return int(frames[0].status.code)

        soon = Duration(nanos=100_000_000)
        receive = {"batch_size": 1, "invisible_duration": Duration(seconds=30), "long_polling_timeout": soon}
        assert await first("PullMessage", "closed", batch_size=1) == d.FORBIDDEN
        assert await first("ReceiveMessage", "closed", **receive) == d.FORBIDDEN
        assert await first("ReceiveMessage", "g", **receive) == d.MESSAGE_NOT_FOUND
        telemetry = stub.Telemetry(metadata=reader)
        publishing = d.Publishing(topics=[d.Resource(name="t")])
        await telemetry.write(s.TelemetryCommand(settings=d.Settings(client_type=d.PRODUCER, publishing=publishing)))
        said = await telemetry.read()
        assert isinstance(said, s.TelemetryCommand)
        assert said.status.code == d.FORBIDDEN


async def test_changed_rules_count_at_once_also_for_who_is_connected(tmp_path: Path) -> None:
    """E-247: a revoked permission ends a running session at its next delivery. A wrong file changes nothing."""
    async with guarded(tmp_path) as cluster, asyncio.timeout(60):
        rules = tmp_path / "access.toml"
        async with (
            as_user(cluster, "shop") as shop,
            as_user(cluster, "ann") as ann,
            shop.consumer("g", ["t"], ConsumerSettings(from_beginning=True)) as consumer,
        ):
            messages = aiter(consumer)
            await send(ann)
            await anext(messages)
            rules.write_text("[[user")
            await cluster.clock.sleep(1.5)
            await send(ann)
            await anext(messages)
            rules.write_text(RULES.replace('g = "SUB"', 'g = "DENY"'))
            with pytest.raises(Forbidden, match="'g'"):
                while True:
                    await send(ann)
                    await anext(messages)
            rules.write_text(RULES.replace('topics = { t = "PUB|SUB" }', 'topics = { "*" = "PUB" }'))
            while True:
                with contextlib.suppress(Forbidden):
                    await send(shop, "u")
                    break
                await cluster.clock.sleep(0.1)


async def test_a_snode_without_its_rules_does_not_start(tmp_path: Path) -> None:
    """E-247: a wrong path does not give everybody all permissions."""
    with pytest.raises(Exception, match=r"\[\[user\]\]"):
        async with open_cluster(tmp_path, settings={"snode": {"access_file": str(tmp_path / "none.toml")}}):
            pass
