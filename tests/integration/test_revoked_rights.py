"""A revoked permission ends waiting calls that need it; checks meant for its user go to others."""

import asyncio
from pathlib import Path
from typing import Any

import grpc
import pytest

from apache.rocketmq.v2 import definition_pb2 as d
from apache.rocketmq.v2 import service_pb2 as s
from apache.rocketmq.v2.service_pb2_grpc import MessagingServiceStub
from ortoo.v1 import consumer_pb2, pop_pb2, pull_pb2, session_pb2, topic_pb2
from ortoo.v1.consumer_pb2_grpc import ConsumerServiceStub
from ortoo.v1.session_pb2_grpc import SessionServiceStub
from tests.integration.guarded_cluster import RULES, as_user, guarded, signed

SOON_S = 8.0
"""The file of rules is checked once a second; ten seconds would be the check of users."""
WAIT_MS = 30_000
READERS = 'topics = { t = "SUB" }'
"""The permission of `reader` in the rules."""


async def test_a_poll_that_waits_ends_with_the_right_to_it(tmp_path: Path) -> None:
    """A message sent after the revocation is not delivered to any kind of waiting call, and is not leased."""
    async with guarded(tmp_path) as cluster, asyncio.timeout(60):
        consumer = ConsumerServiceStub(cluster.channels.channel_to(cluster.address))
        reader = signed(cluster, "reader")
        queue = topic_pb2.Queue(topic="t", enode="enode-0", queue_id=0)
        start = pop_pb2.PopOptions(start_from=pop_pb2.POP_START_FIRST)
        pop = pop_pb2.PopRequest(group="g", topic="t", wait_ms=WAIT_MS, options=start)
        pull = pull_pb2.PullRequest(group="g", queue=queue, offset=0, wait_ms=WAIT_MS)
        polls: list[Any] = [consumer.Pop(pop, metadata=reader), consumer.Pull(pull, metadata=reader)]
        enode: Any = cluster.running["enode-0"]
        while not enode.store.engine.waiting.count:  # the second one waits at the enode
            await cluster.clock.sleep(0.01)
        assert not any(poll.done() for poll in polls)
        (tmp_path / "access.toml").write_text(RULES.replace(READERS, "topics = {}"))
        async with asyncio.timeout(SOON_S):
            for poll in polls:
                with pytest.raises(grpc.aio.AioRpcError, match="no SUB for topic 't'") as refused:
                    await poll
                assert refused.value.code() is grpc.StatusCode.PERMISSION_DENIED
        async with as_user(cluster, "shop") as shop, shop.producer("t") as producer:
            await producer.send(b"x")
        popped = await consumer.Pop(pop, metadata=signed(cluster, "shop"))
        assert popped.batches[0].attempts in ([], [1])


async def test_a_push_of_a_session_ends_with_the_sessions_right(tmp_path: Path) -> None:
    """It names no topics of its own, and ends as soon as the user loses the session's topics."""
    async with guarded(tmp_path) as cluster, asyncio.timeout(60):
        channel = cluster.channels.channel_to(cluster.address)
        connected = SessionServiceStub(channel).Connect(metadata=signed(cluster, "reader"))
        await connected.write(session_pb2.ConnectRequest(hello=session_pb2.Hello(client_id="c")))
        opened = await connected.read()
        assert isinstance(opened, session_pb2.ConnectResponse)
        wanted = [consumer_pb2.Subscription(topic="t")]
        register = session_pb2.RegisterConsumer(group="g", subscriptions=wanted)
        await connected.write(session_pb2.ConnectRequest(register_consumer=register))
        await connected.read()
        push = ConsumerServiceStub(channel).Push(metadata=signed(cluster, "reader"))
        session = consumer_pb2.OpenSession(group="g", session_id=opened.opened.session_id)
        await push.write(consumer_pb2.PushRequest(open=session))
        assert isinstance(await push.read(), consumer_pb2.PushResponse)
        (tmp_path / "access.toml").write_text(RULES.replace(READERS, "topics = {}"))
        async with asyncio.timeout(SOON_S):
            last = consumer_pb2.PushResponse()
            while isinstance(said := await push.read(), consumer_pb2.PushResponse):
                last = said
        assert last.HasField("closed")


async def test_a_client_id_of_a_group_is_one_users_in_both_protocols(tmp_path: Path) -> None:
    """A client id in RocketMQ's protocol neither takes over nor ends another user's session."""
    async with guarded(tmp_path) as cluster, asyncio.timeout(60):
        channel = cluster.channels.channel_to(cluster.address)
        push = ConsumerServiceStub(channel).Push(metadata=signed(cluster, "shop"))
        wanted = [consumer_pb2.Subscription(topic="t")]
        own = consumer_pb2.OpenSession(group="g", client_id="c", subscriptions=wanted)
        await push.write(consumer_pb2.PushRequest(open=own))
        assert isinstance(await push.read(), consumer_pb2.PushResponse)
        stub, reader = MessagingServiceStub(channel), (("x-mq-client-id", "c"), *signed(cluster, "reader"))
        group = d.Resource(name="g")
        beat = s.HeartbeatRequest(client_type=d.SIMPLE_CONSUMER, group=group)
        assert (await stub.Heartbeat(beat, metadata=reader)).status.code == d.FORBIDDEN
        telemetry = stub.Telemetry(metadata=reader)
        settings = d.Settings(client_type=d.SIMPLE_CONSUMER, subscription=d.Subscription(group=group))
        await telemetry.write(s.TelemetryCommand(settings=settings))
        said = await telemetry.read()
        assert isinstance(said, s.TelemetryCommand)
        assert said.status.code == d.FORBIDDEN
        request = pull_pb2.QueryMembersRequest(group="g")
        members = await ConsumerServiceStub(channel).QueryMembers(request, metadata=signed(cluster, "shop"))
        assert [(one.client_id, one.pushed) for one in members.members] == [("c", True)]
