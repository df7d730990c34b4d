"""Half messages are shown to clients that may send to their topic, whatever identity they claim."""

import asyncio
from pathlib import Path
from typing import Any

import grpc
import pytest

from apache.rocketmq.v2 import definition_pb2 as d
from apache.rocketmq.v2 import service_pb2 as s
from apache.rocketmq.v2.service_pb2_grpc import MessagingServiceStub
from ortoo.v1 import namesrv_pb2, producer_pb2, record_pb2, topic_pb2
from ortoo.v1.producer_pb2_grpc import ProducerServiceStub
from ortoo.verification.servers.cluster import InProcessCluster, open_cluster
from tests.integration.guarded_cluster import SECRET, signed

RULES = """
[[user]]
access_key = "ann"
admin = true
[[user]]
access_key = "curious"
topics = { t = "PUB" }
groups = { p = "PUB" }
[[user]]
access_key = "owner"
topics = { secret = "PUB" }
groups = { p = "PUB" }
"""
QUICK = {"transaction_check_after_ms": 100, "transaction_check_interval_ms": 100, "transaction_checks_max": 10_000}


async def half_message(cluster: InProcessCluster, topic: str, group: str, user: str = "ann") -> None:
    """Begin a transaction and abandon it; its producers get checks from now on."""
    stub = ProducerServiceStub(cluster.channels.channel_to(cluster.address))
    message = record_pb2.Message(body=topic.encode())
    begin = producer_pb2.BeginTransactionRequest(topic=topic, messages=[message], producer_group=group)
    await stub.BeginTransaction(begin, metadata=signed(cluster, user))


async def test_checks_reach_only_producers_that_may_send_to_the_topic(tmp_path: Path) -> None:
    """Within one group each is asked about its own topics, natively and with another's client id of RocketMQ's."""
    rules = tmp_path / "access.toml"
    rules.write_text(RULES)
    settings: dict[str, Any] = {"snode": {"access_file": str(rules)}, "enode": QUICK}
    async with open_cluster(tmp_path, settings=settings) as cluster, asyncio.timeout(60):
        for user in ("ann", "curious", "owner"):
            about = namesrv_pb2.User(access_key=user)
            await cluster.name_service.PutUser(namesrv_pb2.PutUserRequest(user=about, secret_key=SECRET))
        for topic in ("t", "secret"):
            await cluster.create_topic(topic, queues=1)
        channel = cluster.channels.channel_to(cluster.address)
        watching = producer_pb2.WatchTransactionChecksRequest(producer_group="p")
        calls: dict[str, Any] = {
            user: ProducerServiceStub(channel).WatchTransactionChecks(watching, metadata=signed(cluster, user))
            for user in ("curious", "owner")
        }
        for call in calls.values():
            assert not (await call.read()).messages
        for topic in ("secret", "t", "secret"):  # an odd number, for producers take turns
            await half_message(cluster, topic, "p")
        for user, topic in (("curious", "t"), ("owner", "secret")):
            asked = [await calls[user].read() for _ in range(5)]
            assert {(check.topic, check.messages[0].body) for check in asked} == {(topic, topic.encode())}

        stub = MessagingServiceStub(channel)
        publishing = d.Publishing(topics=[d.Resource(name="secret")])
        command = s.TelemetryCommand(settings=d.Settings(client_type=d.PRODUCER, publishing=publishing))

        def telemetry(user: str, client_id: str) -> Any:
            return stub.Telemetry(metadata=(("x-mq-client-id", client_id), *signed(cluster, user)))

        own = telemetry("owner", "c")
        await own.write(command)
        assert (await own.read()).status.code == d.OK
        await half_message(cluster, "secret", "secret")
        for client_id in ("c", "another"):
            stolen = telemetry("curious", client_id)
            await stolen.write(command)
            said = await stolen.read()
            assert (said.WhichOneof("command"), said.status.code) == (None, d.FORBIDDEN)
            with pytest.raises(grpc.aio.AioRpcError):
                await stolen.read()
        orphan = (await own.read()).recover_orphaned_transaction_command
        assert orphan.message.body == b"secret"


async def test_a_transaction_names_only_a_producer_group_of_its_user(tmp_path: Path) -> None:
    """Otherwise another user could send messages to the producers of any group, as checks."""
    rules = tmp_path / "access.toml"
    rules.write_text(RULES)
    async with open_cluster(tmp_path, settings={"snode": {"access_file": str(rules)}}) as cluster, asyncio.timeout(60):
        about = namesrv_pb2.User(access_key="curious")
        await cluster.name_service.PutUser(namesrv_pb2.PutUserRequest(user=about, secret_key=SECRET))
        await cluster.create_topic("t", queues=1)
        await half_message(cluster, "t", "p", "curious")
        for group in ("another", "secret"):
            with pytest.raises(grpc.aio.AioRpcError, match=f"no PUB for group '{group}'") as refused:
                await half_message(cluster, "t", group, "curious")
            assert refused.value.code() is grpc.StatusCode.PERMISSION_DENIED


@pytest.mark.parametrize("is_signed_twice", [False, True])
async def test_a_producer_that_may_not_send_any_more_is_asked_no_more(tmp_path: Path, *, is_signed_twice: bool) -> None:
    """A producer that loses a permission for a topic outside its settings keeps its stream, and gets no such check.

    Also where RocketMQ's clients must sign by a setting of their own beside the rules.
    """
    rules = tmp_path / "access.toml"
    rules.write_text(RULES)
    snode = {"access_file": str(rules), "rocketmq_signatures_required": is_signed_twice}
    async with open_cluster(tmp_path, settings={"snode": snode, "enode": QUICK}) as cluster, asyncio.timeout(60):
        stub = MessagingServiceStub(cluster.channels.channel_to(cluster.address))
        topic = d.Resource(name="t")
        await cluster.create_topic("t", queues=1, message_type=topic_pb2.MESSAGE_TYPE_TRANSACTION)
        streams: dict[str, Any] = {}
        for number, user in enumerate(("curious", "ann")):
            about = namesrv_pb2.User(access_key=user)
            await cluster.name_service.PutUser(namesrv_pb2.PutUserRequest(user=about, secret_key=SECRET))
            headers = (("x-mq-client-id", user), *signed(cluster, user))
            streams[user] = stub.Telemetry(metadata=headers)
            settings = d.Settings(client_type=d.PRODUCER, publishing=d.Publishing())
            await streams[user].write(s.TelemetryCommand(settings=settings))
            assert (await streams[user].read()).status.code == d.OK
            system = d.SystemProperties(message_id=f"m{number}", message_type=d.TRANSACTION)
            half = s.SendMessageRequest(messages=[d.Message(topic=topic, system_properties=system, body=b"half")])
            assert (await stub.SendMessage(half, metadata=headers)).status.code == d.OK

        asked: asyncio.Queue[str] = asyncio.Queue()

        async def hear(user: str) -> None:
            while True:
                check = (await streams[user].read()).recover_orphaned_transaction_command
                assert check.message.body == b"half"
                asked.put_nowait(user)

        async with asyncio.TaskGroup() as hearing:
            tasks = [hearing.create_task(hear(user)) for user in streams]
            while {await asked.get(), await asked.get()} != streams.keys():
                pass  # both are asked in turn
            rules.write_text(RULES.replace('topics = { t = "PUB" }', "topics = {}"))
            in_a_row = 0
            while in_a_row < 4:  # both were asked, before
                in_a_row = in_a_row + 1 if await asked.get() == "ann" else 0
            assert not streams["curious"].done()
            for task in tasks:
                task.cancel()
