"""Operators and clients of RocketMQ's protocol: lists of clients, and commands to them by AdminService."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

from apache.rocketmq.v2 import definition_pb2 as d
from apache.rocketmq.v2 import service_pb2 as s
from apache.rocketmq.v2.definition_pb2 import Code, Resource
from apache.rocketmq.v2.service_pb2_grpc import MessagingServiceStub
from ortoo.common.process.background import Background
from ortoo.v1 import client_pb2, failure_pb2, session_pb2, topic_pb2
from ortoo.v1.admin_pb2_grpc import AdminServiceStub
from ortoo.verification.servers.cluster import open_cluster

METADATA = (("x-mq-client-id", "a-client"), ("x-mq-language", "BASIC"), ("x-mq-client-version", "7.0"))
TOPIC, GROUP = Resource(name="t"), Resource(name="g")
SETTINGS = d.Settings(
    client_type=d.ClientType.PUSH_CONSUMER,
    subscription=d.Subscription(
        group=GROUP,
        subscriptions=[d.SubscriptionEntry(topic=TOPIC, expression=d.FilterExpression(expression="red"))],
    ),
)


class Member:
    """A client made of bare calls: one telemetry stream."""

    def __init__(self, messaging: MessagingServiceStub, admin: AdminServiceStub) -> None:
        self.messaging = messaging
        self.admin = admin
        self.stream: Any = messaging.Telemetry(metadata=METADATA)

    async def connect(self) -> None:
        """Send the settings and read the answer."""
        await self.stream.write(s.TelemetryCommand(settings=SETTINGS))
        assert (await self.stream.read()).status.code == Code.OK

    async def call(self, client_id: str = "a-client", **command: Any) -> session_pb2.CommandResult:
        """Give this command as an operator and return the answer."""
        request = client_pb2.CallClientRequest(client_id=client_id, command=session_pb2.Command(**command))
        return (await self.admin.CallClient(request)).result


@asynccontextmanager
async def connected(folder: Path) -> AsyncIterator[Member]:
    """A cluster with topic `t`, and a connected member of group `g`."""
    async with open_cluster(folder) as cluster, grpc.aio.insecure_channel(cluster.address) as channel:
        await cluster.create_topic("t", queues=1)
        member = Member(MessagingServiceStub(channel), AdminServiceStub(channel))
        await member.connect()
        yield member


async def test_operators_see_the_clients_and_those_that_left_no_more(tmp_path: Path) -> None:
    """Clients and consumers are listed with group, subscription and language, until they terminate."""
    async with connected(tmp_path) as member:
        [client] = (await member.admin.ListClients(client_pb2.ListClientsRequest())).clients
        assert (client.client_id, client.snode, client.language, client.client_version) == (
            "a-client",
            "snode-0",
            "BASIC",
            "7.0",
        )
        assert list(client.consumer_groups) == ["g"]
        [consumer] = (await member.admin.ListConsumers(client_pb2.ListConsumersRequest(group="g"))).consumers
        assert [(one.topic, one.tag_expression) for one in consumer.subscriptions] == [("t", "red")]
        assert (consumer.pushed, consumer.active) == (True, False)
        await member.messaging.NotifyClientTermination(s.NotifyClientTerminationRequest(group=GROUP), metadata=METADATA)
        assert not (await member.admin.ListClients(client_pb2.ListClientsRequest())).clients


async def test_a_producer_is_listed_by_the_topics_it_sends_to(tmp_path: Path) -> None:
    """The settings of a producer list it among the producers of its topics."""
    async with connected(tmp_path) as member:
        producer = (("x-mq-client-id", "p"),)
        stream = member.messaging.Telemetry(metadata=producer)
        settings = d.Settings(client_type=d.ClientType.PRODUCER, publishing=d.Publishing(topics=[TOPIC]))
        await stream.write(s.TelemetryCommand(settings=settings))
        await stream.read()
        [client] = (await member.admin.ListClients(client_pb2.ListClientsRequest(group="t"))).clients
        assert (client.client_id, list(client.producer_groups)) == ("p", ["t"])


async def test_a_client_shows_its_stacks(tmp_path: Path) -> None:
    """The operator gets the text; an answer without a status is accepted as well."""
    async with connected(tmp_path) as member, Background("test") as background:
        for status in (d.Status(code=Code.OK), None):
            asked = background.spawn("call", member.call(print_stack=session_pb2.PrintStack()))
            command = (await member.stream.read()).print_thread_stack_trace_command
            trace = s.ThreadStackTrace(nonce=command.nonce, thread_stack_trace="main: asleep")
            await member.stream.write(s.TelemetryCommand(status=status, thread_stack_trace=trace))
            assert (await asked).stack == "main: asleep"


@pytest.mark.parametrize(
    ("code", "succeeded", "failure"),
    [
        (Code.OK, True, None),
        (Code.FAILED_TO_CONSUME_MESSAGE, False, None),
        (Code.NOT_IMPLEMENTED, False, failure_pb2.FAILURE_KIND_UNSUPPORTED),
        (Code.VERIFY_FIFO_MESSAGE_UNSUPPORTED, False, failure_pb2.FAILURE_KIND_UNSUPPORTED),
        (Code.INTERNAL_ERROR, False, failure_pb2.FAILURE_KIND_CONFLICT),
    ],
)
async def test_a_stored_message_is_verified(
    code: "Code.ValueType", succeeded: bool, failure: int | None, tmp_path: Path
) -> None:
    """The client gets the stored message with that id; the operator gets the result of its listener."""
    async with connected(tmp_path) as member, Background("test") as background:
        message = d.Message(topic=TOPIC, body=b"hi", system_properties=d.SystemProperties(message_id="m-1", tag="red"))
        await member.messaging.SendMessage(s.SendMessageRequest(messages=[message]), metadata=METADATA)
        wish = session_pb2.ConsumeMessage(group="g", queue=topic_pb2.Queue(topic="t"), message_id="m-1")
        asked = background.spawn("call", member.call(consume_message=wish))
        command = (await member.stream.read()).verify_message_command
        assert (command.message.body, command.message.system_properties.message_id) == (b"hi", "m-1")
        result = s.VerifyMessageResult(nonce=command.nonce)
        await member.stream.write(
            s.TelemetryCommand(status=d.Status(code=code, message="so it went"), verify_message_result=result)
        )
        answer = await asked
        assert answer.consumed.succeeded == succeeded
        if failure is not None:
            assert (answer.failure.kind, "so it went" in answer.failure.message) == (failure, True)
        elif not succeeded:
            assert answer.consumed.error == "so it went"


async def test_a_client_is_told_to_connect_again(tmp_path: Path) -> None:
    """The command is sent without waiting for an answer."""
    async with connected(tmp_path) as member:
        answer = await member.call(reconnect=session_pb2.Reconnect())
        assert not answer.HasField("failure")
        assert (await member.stream.read()).reconnect_endpoints_command.nonce


async def test_what_cannot_be_is_said_clearly(tmp_path: Path) -> None:
    """A silent client, an unknown command, an unknown message or client: each has its error."""
    async with connected(tmp_path) as member:
        with pytest.raises(grpc.aio.AioRpcError) as silent:
            await member.call(print_stack=session_pb2.PrintStack(), timeout_ms=200)
        assert silent.value.code() == grpc.StatusCode.UNAVAILABLE
        assert "did not answer the command within 0.2 s" in str(silent.value.details())
        answer = await member.call(describe_running=session_pb2.DescribeRunning())
        assert answer.failure.kind == failure_pb2.FAILURE_KIND_UNSUPPORTED
        gone = session_pb2.ConsumeMessage(queue=topic_pb2.Queue(topic="t"), message_id="absent")
        with pytest.raises(grpc.aio.AioRpcError) as absent:
            await member.call(consume_message=gone)
        assert absent.value.code() == grpc.StatusCode.NOT_FOUND
        with pytest.raises(grpc.aio.AioRpcError) as unknown:
            await member.call("nobody", print_stack=session_pb2.PrintStack())
        assert unknown.value.code() == grpc.StatusCode.NOT_FOUND
