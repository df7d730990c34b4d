"""G16: an answer shows only topics and sessions that its caller may see. Each method of the snode is called."""

import asyncio
import contextlib
from pathlib import Path
from typing import Any

import grpc

from ortoo.client import Message, connect
from ortoo.v1 import consumer_pb2, namesrv_pb2, pull_pb2, session_pb2, topic_pb2
from ortoo.v1.consumer_pb2_grpc import ConsumerServiceStub
from ortoo.v1.session_pb2_grpc import SessionServiceStub
from ortoo.verification.servers.cluster import InProcessCluster, open_cluster
from tests.contract.test_g16_rights import METHODS, NAMES, RIGHTS, call, request_of
from tests.integration.guarded_cluster import SECRET, signed

HIDDEN = "concealed"
"""A topic of group `g` without permissions of the user `partial`; its messages have this body."""
RULES = f"""
[[user]]
access_key = "partial"
topics = {{ t = "PUB|SUB" }}
groups = {{ g = "PUB|SUB" }}
[[user]]
access_key = "member"
topics = {{ t = "PUB|SUB", {HIDDEN} = "PUB|SUB" }}
groups = {{ g = "PUB|SUB" }}
[[user]]
access_key = "ann"
admin = true
"""
ENTRIES: dict[str, dict[str, object]] = {
    "partial": {"topics": {"t": "PUB|SUB"}, "groups": {"g": "PUB|SUB"}},
    "ann": {"admin": True},
}
FILTERED = {
    "AdminService/DescribeGroup",
    "ConsumerService/QueryMembers",
    "DeadLetterService/ListDeadLetters",
    "SessionService/Connect",
}
"""The methods whose answers are shorter for `partial` than for an admin."""
HEARING_S = 10.0
"""The time for which the answers of a stream are collected."""
ANSWER_MAX_S = 60.0
"""The time for a single answer. All calls of a user run at once, which takes long on a busy machine."""


async def park_messages(cluster: InProcessCluster) -> None:
    """Two topics with messages, and a dead letter of each in group `g`."""
    consumer = ConsumerServiceStub(cluster.channels.channel_to(cluster.address))
    async with connect(cluster.address, access_key="ann", secret_key=SECRET) as mq:
        for topic in ("t", HIDDEN):
            await mq.admin.create_topic(topic, queue_count=1)
            async with mq.producer(topic) as producer:
                await producer.send_many([Message(topic.encode(), keys=(topic,)) for _ in range(2)])
            queue = topic_pb2.Queue(topic=topic, enode="enode-0", queue_id=0)
            park = pull_pb2.NackMessagesRequest(group="g", queue=queue, offsets=[0], delay_level=-1)
            await consumer.NackMessages(park, metadata=signed(cluster, "ann"))


async def test_no_answer_names_what_its_caller_may_not_see(tmp_path: Path) -> None:
    """G16: a user with permissions on one topic of a group sees neither another topic of it nor others' session ids."""
    (tmp_path / "access.toml").write_text(RULES)
    settings = {"snode": {"access_file": str(tmp_path / "access.toml")}}
    async with open_cluster(tmp_path, settings=settings) as cluster, asyncio.timeout(280):
        for user in ("partial", "member", "ann"):
            about = namesrv_pb2.User(access_key=user, enabled=True)
            await cluster.name_service.PutUser(namesrv_pb2.PutUserRequest(user=about, secret_key=SECRET))
        await park_messages(cluster)
        topic_id = (await cluster.name_service.GetTopic(namesrv_pb2.GetTopicRequest(name="t"))).topic.topic_id
        sessions = SessionServiceStub(cluster.channels.channel_to(cluster.address))
        member = sessions.Connect(metadata=signed(cluster, "member"))
        await member.write(session_pb2.ConnectRequest(hello=session_pb2.Hello(client_id="of-member")))
        opened = await member.read()
        assert isinstance(opened, session_pb2.ConnectResponse)
        session_id = opened.opened.session_id
        topics = [consumer_pb2.Subscription(topic=name) for name in ("t", HIDDEN)]
        register = session_pb2.RegisterConsumer(group="g", subscriptions=topics)
        await member.write(session_pb2.ConnectRequest(register_consumer=register))
        registered = await member.read()
        assert isinstance(registered, session_pb2.ConnectResponse)
        assert not registered.registered.HasField("failure")

        async def shown(user: str, row: tuple[str, str]) -> str:
            said: list[Any] = []
            headers = (f"of-{user}-{row[1]}", signed(cluster, user))
            requests: list[Any] = request_of(*row, topic_id)
            if row[0] == "DeadLetterService/ReplayDeadLetters":
                requests[0].dry_run = True  # the dead letters stay for the other calls
            method = METHODS[row[0]]
            timeout_s = HEARING_S if method.server_streaming else ANSWER_MAX_S
            with contextlib.suppress(grpc.aio.AioRpcError):
                await call(cluster, method, requests, headers, timeout_s, said)
            return "\n".join(map(str, said))

        rows = [row for row in RIGHTS if RIGHTS[row].allow(ENTRIES["partial"], NAMES)]
        assert len(rows) > len(METHODS) // 3
        told: dict[str, dict[tuple[str, str], str]] = {}
        for user in ENTRIES:
            told[user] = dict(zip(rows, await asyncio.gather(*(shown(user, row) for row in rows)), strict=True))
        names = (HIDDEN, session_id)
        assert {row[0] for row in rows if any(name in told["partial"][row] for name in names)} == set()
        assert {row[0] for row in rows if any(name in told["ann"][row] for name in names)} == FILTERED
        member.cancel()
