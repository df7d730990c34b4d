"""Refusals of RocketMQ's protocol, with the exact code; nothing is stored and no process fails."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from apache.rocketmq.v2 import definition_pb2 as d
from apache.rocketmq.v2 import service_pb2 as s
from apache.rocketmq.v2.definition_pb2 import Code, Resource
from apache.rocketmq.v2.service_pb2_grpc import MessagingServiceStub
from ortoo.common.grpc.channels import Channels
from ortoo.common.process.clock import SystemClock
from ortoo.v1 import flow_control_pb2
from ortoo.v1.admin_pb2_grpc import AdminServiceStub
from ortoo.verification.servers.cluster import InProcessCluster, open_cluster

METADATA = (("x-mq-client-id", "tester"), ("x-mq-language", "PYTHON"))
TOPIC, GROUP = Resource(name="t"), Resource(name="g")
QUEUE = d.MessageQueue(topic=TOPIC, id=0, broker=d.Broker(name="enode-0"))
Call = Callable[[MessagingServiceStub], Any]


@asynccontextmanager
async def served(folder: Path) -> AsyncIterator[tuple[InProcessCluster, MessagingServiceStub]]:
    """A cluster with topic `t`, and raw calls to it."""
    async with open_cluster(folder) as cluster, grpc.aio.insecure_channel(cluster.address) as channel:
        await cluster.create_topic("t", queues=1)
        yield cluster, MessagingServiceStub(channel)


def ask(method: str, request: Any, metadata: tuple[tuple[str, str], ...] = METADATA) -> Call:
    """A call of one method."""
    return lambda stub: getattr(stub, method)(request, metadata=metadata)


def message(body: bytes = b"b", topic: Resource = TOPIC, **system: Any) -> d.Message:
    """A message that is valid except for the fields of a case."""
    return d.Message(topic=topic, body=body, system_properties=d.SystemProperties(**({"message_id": "i"} | system)))


def with_properties(properties: dict[str, str]) -> d.Message:
    """A message with these properties."""
    changed = message()
    changed.user_properties.update(properties)
    return changed


def send(*messages: d.Message) -> Call:
    """A send of these messages."""
    return ask("SendMessage", s.SendMessageRequest(messages=messages))


def receive(group: Resource = GROUP, topic: Resource = TOPIC, **changed: Any) -> Call:
    """A receive that is valid except for the fields of a case; its first frame is the answer."""
    fields: dict[str, Any] = {"invisible_duration": Duration(seconds=30), "batch_size": 1} | changed
    queue = d.MessageQueue(topic=topic, id=0, broker=d.Broker(name="enode-0"))
    request = s.ReceiveMessageRequest(group=group, message_queue=queue, **fields)

    async def first_frame(stub: MessagingServiceStub) -> Any:
        frames = [frame async for frame in stub.ReceiveMessage(request, metadata=METADATA, timeout=20)]
        return frames[0]

    return first_frame


def far_ahead() -> Timestamp:
    """A time that is more than a year ahead."""
    return Timestamp(seconds=SystemClock().now_ms() // 1000 + 400 * 86_400)


REFUSALS: list[tuple[str, Call, "Code.ValueType"]] = [
    ("no client id", ask("QueryRoute", s.QueryRouteRequest(topic=TOPIC), ()), Code.CLIENT_ID_REQUIRED),
    ("huge client id", ask("Heartbeat", s.HeartbeatRequest(), (("x-mq-client-id", "c" * 600),)), Code.BAD_REQUEST),
    ("route without topic", ask("QueryRoute", s.QueryRouteRequest()), Code.ILLEGAL_TOPIC),
    (
        "route of an illegal topic",
        ask("QueryRoute", s.QueryRouteRequest(topic=Resource(name="a b"))),
        Code.ILLEGAL_TOPIC,
    ),
    (
        "route of a topic with a long name",
        ask("QueryRoute", s.QueryRouteRequest(topic=Resource(name="x" * 128))),
        Code.ILLEGAL_TOPIC,
    ),
    (
        "route of a system topic",
        ask("QueryRoute", s.QueryRouteRequest(topic=Resource(name="TBW102"))),
        Code.ILLEGAL_TOPIC,
    ),
    ("route of rmq_sys_", ask("QueryRoute", s.QueryRouteRequest(topic=Resource(name="rmq_sys_x"))), Code.ILLEGAL_TOPIC),
    (
        "route of an unknown topic",
        ask("QueryRoute", s.QueryRouteRequest(topic=Resource(name="absent"))),
        Code.TOPIC_NOT_FOUND,
    ),
    (
        "assignment without group",
        ask("QueryAssignment", s.QueryAssignmentRequest(topic=TOPIC)),
        Code.ILLEGAL_CONSUMER_GROUP,
    ),
    (
        "assignment of a system group",
        ask("QueryAssignment", s.QueryAssignmentRequest(topic=TOPIC, group=Resource(name="CID_RMQ_SYS_x"))),
        Code.ILLEGAL_CONSUMER_GROUP,
    ),
    (
        "assignment of an unknown topic",
        ask("QueryAssignment", s.QueryAssignmentRequest(topic=Resource(name="absent"), group=GROUP)),
        Code.TOPIC_NOT_FOUND,
    ),
    (
        "heartbeat of a consumer without group",
        ask("Heartbeat", s.HeartbeatRequest(client_type=d.ClientType.PUSH_CONSUMER)),
        Code.ILLEGAL_CONSUMER_GROUP,
    ),
    (
        "termination of an illegal group",
        ask("NotifyClientTermination", s.NotifyClientTerminationRequest(group=Resource(name="a b"))),
        Code.ILLEGAL_CONSUMER_GROUP,
    ),
    ("no messages", send(), Code.MESSAGE_CORRUPTED),
    ("two topics in one send", send(message(), message(topic=Resource(name="u"))), Code.MESSAGE_CORRUPTED),
    ("send to an illegal topic", send(message(topic=Resource(name="ü"))), Code.ILLEGAL_TOPIC),
    ("send to an unknown topic", send(message(topic=Resource(name="absent"))), Code.TOPIC_NOT_FOUND),
    ("no body", send(message(b"")), Code.MESSAGE_BODY_EMPTY),
    ("body too large", send(message(bytes((4 << 20) + 1))), Code.MESSAGE_BODY_TOO_LARGE),
    ("no message id", send(message(message_id="")), Code.ILLEGAL_MESSAGE_ID),
    ("blank message id", send(message(message_id="  ")), Code.ILLEGAL_MESSAGE_ID),
    ("tag with a bar", send(message(tag="a|b")), Code.ILLEGAL_MESSAGE_TAG),
    ("blank tag", send(message(tag=" ")), Code.ILLEGAL_MESSAGE_TAG),
    ("control character in a tag", send(message(tag="a\x01")), Code.ILLEGAL_MESSAGE_TAG),
    ("blank key", send(message(keys=["a", " "])), Code.ILLEGAL_MESSAGE_KEY),
    ("control character in a key", send(message(keys=["a\x7f"])), Code.ILLEGAL_MESSAGE_KEY),
    ("blank message group", send(message(message_group=" ")), Code.ILLEGAL_MESSAGE_GROUP),
    ("long message group", send(message(message_group="g" * 64)), Code.ILLEGAL_MESSAGE_GROUP),
    ("reserved property", send(with_properties({"UNIQ_KEY": "x"})), Code.ILLEGAL_MESSAGE_PROPERTY_KEY),
    ("control character in a property", send(with_properties({"a\x01": "x"})), Code.ILLEGAL_MESSAGE_PROPERTY_KEY),
    ("129 properties", send(with_properties({f"p{n}": "x" for n in range(129)})), Code.MESSAGE_PROPERTIES_TOO_LARGE),
    ("16 KiB of properties", send(with_properties({"p": "x" * (16 << 10)})), Code.MESSAGE_PROPERTIES_TOO_LARGE),
    ("too far ahead", lambda stub: send(message(delivery_timestamp=far_ahead()))(stub), Code.ILLEGAL_DELIVERY_TIME),
    (
        "recovery after two hours",
        send(
            message(
                message_type=d.MessageType.TRANSACTION, orphaned_transaction_recovery_duration=Duration(seconds=7200)
            )
        ),
        Code.BAD_REQUEST,
    ),
    ("a lite message for a plain topic", send(message(lite_topic="x")), Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE),
    ("the last of many is wrong", send(message(), message(), message(tag="a|b")), Code.ILLEGAL_MESSAGE_TAG),
    (
        "offset of a queue that is not there",
        ask(
            "GetOffset",
            s.GetOffsetRequest(
                group=GROUP, message_queue=d.MessageQueue(topic=TOPIC, id=9, broker=d.Broker(name="enode-0"))
            ),
        ),
        Code.BAD_REQUEST,
    ),
    ("no offset yet", ask("GetOffset", s.GetOffsetRequest(group=GROUP, message_queue=QUEUE)), Code.OFFSET_NOT_FOUND),
    (
        "offset beyond the end",
        ask("UpdateOffset", s.UpdateOffsetRequest(group=GROUP, message_queue=QUEUE, offset=7)),
        Code.ILLEGAL_OFFSET,
    ),
    (
        "offset by no time",
        ask(
            "QueryOffset", s.QueryOffsetRequest(message_queue=QUEUE, query_offset_policy=d.QueryOffsetPolicy.TIMESTAMP)
        ),
        Code.BAD_REQUEST,
    ),
    (
        "offset by no known policy",
        ask("QueryOffset", s.QueryOffsetRequest(message_queue=QUEUE, query_offset_policy=9)),  # type: ignore[arg-type]
        Code.BAD_REQUEST,
    ),
    (
        "acknowledgement of nothing",
        ask("AckMessage", s.AckMessageRequest(group=GROUP, topic=TOPIC)),
        Code.BAD_REQUEST,
    ),
    (
        "garbage receipt handle",
        ask(
            "AckMessage", s.AckMessageRequest(group=GROUP, topic=TOPIC, entries=[s.AckMessageEntry(receipt_handle="x")])
        ),
        Code.INVALID_RECEIPT_HANDLE,
    ),
    (
        "no receipt handle",
        ask("ChangeInvisibleDuration", s.ChangeInvisibleDurationRequest(group=GROUP, topic=TOPIC)),
        Code.INVALID_RECEIPT_HANDLE,
    ),
    (
        "invisible for 13 hours",
        ask(
            "ChangeInvisibleDuration",
            s.ChangeInvisibleDurationRequest(
                group=GROUP, topic=TOPIC, receipt_handle="x", invisible_duration=Duration(seconds=13 * 3600)
            ),
        ),
        Code.ILLEGAL_INVISIBLE_TIME,
    ),
    (
        "negative invisible time",
        ask(
            "ChangeInvisibleDuration",
            s.ChangeInvisibleDurationRequest(
                group=GROUP, topic=TOPIC, receipt_handle="x", invisible_duration=Duration(seconds=-1)
            ),
        ),
        Code.ILLEGAL_INVISIBLE_TIME,
    ),
    (
        "garbage handle for the dead letters",
        ask(
            "ForwardMessageToDeadLetterQueue",
            s.ForwardMessageToDeadLetterQueueRequest(group=GROUP, topic=TOPIC, receipt_handle="ä" * 400),
        ),
        Code.INVALID_RECEIPT_HANDLE,
    ),
    (
        "garbage recall handle",
        ask("RecallMessage", s.RecallMessageRequest(topic=TOPIC, recall_handle="x.y")),
        Code.BAD_REQUEST,
    ),
    (
        "no recall handle",
        ask("RecallMessage", s.RecallMessageRequest(topic=TOPIC)),
        Code.BAD_REQUEST,
    ),
    (
        "no transaction id",
        ask("EndTransaction", s.EndTransactionRequest(topic=TOPIC, resolution=d.TransactionResolution.COMMIT)),
        Code.INVALID_TRANSACTION_ID,
    ),
    (
        "garbage transaction id",
        ask(
            "EndTransaction",
            s.EndTransactionRequest(topic=TOPIC, transaction_id="x", resolution=d.TransactionResolution.ROLLBACK),
        ),
        Code.INVALID_TRANSACTION_ID,
    ),
    ("receive of an unknown topic", receive(topic=Resource(name="absent")), Code.TOPIC_NOT_FOUND),
    ("receive without group", receive(group=Resource()), Code.ILLEGAL_CONSUMER_GROUP),
    (
        "receive with a bad tag expression",
        receive(filter_expression=d.FilterExpression(expression="||")),
        Code.ILLEGAL_FILTER_EXPRESSION,
    ),
    (
        "receive with bad SQL",
        receive(filter_expression=d.FilterExpression(type=d.FilterType.SQL, expression="a = = 1")),
        Code.ILLEGAL_FILTER_EXPRESSION,
    ),
    ("receive for a second", receive(invisible_duration=Duration(seconds=1)), Code.ILLEGAL_INVISIBLE_TIME),
    ("receive for 13 hours", receive(invisible_duration=Duration(seconds=13 * 3600)), Code.ILLEGAL_INVISIBLE_TIME),
    ("receive of nothing", receive(long_polling_timeout=Duration(nanos=1_000_000)), Code.MESSAGE_NOT_FOUND),
    (
        "offset by no queue id",
        ask("QueryOffset", s.QueryOffsetRequest(message_queue=d.MessageQueue(topic=TOPIC, id=-1))),
        Code.BAD_REQUEST,
    ),
]


async def test_each_refusal_has_its_code_and_stores_nothing(tmp_path: Path) -> None:
    """Every invalid request ends with gRPC OK and its code of the protocol; the queue stays empty."""
    async with served(tmp_path) as (_, stub):
        wrong = {}
        for name, call, code in REFUSALS:
            status = (await call(stub)).status
            if status.code != code or not status.message:
                wrong[name] = f"{Code.Name(status.code)} instead of {Code.Name(code)}: {status.message}"
        assert wrong == {}
        end = await stub.QueryOffset(
            s.QueryOffsetRequest(message_queue=QUEUE, query_offset_policy=d.QueryOffsetPolicy.END), metadata=METADATA
        )
        assert (end.status.code, end.offset) == (Code.OK, 0)


async def test_a_blank_client_id_is_refused(tmp_path: Path, each_transport: str) -> None:
    """Only grpc.aio accepts a header that consists of a space, so only there the call gets a code of the protocol."""
    call = ask("QueryRoute", s.QueryRouteRequest(topic=TOPIC), (("x-mq-client-id", " "),))
    async with served(tmp_path) as (_, stub):
        if each_transport == "grpc":
            assert (await call(stub)).status.code == Code.CLIENT_ID_REQUIRED
        else:
            with pytest.raises(grpc.aio.AioRpcError, match="RST_STREAM"):
                await call(stub)


async def test_invisible_times_out_of_range_are_refused_in_rocketmqs_words(tmp_path: Path) -> None:
    """The tests of its clients compare these texts."""
    long = Duration(seconds=13 * 3600)
    change = s.ChangeInvisibleDurationRequest(group=GROUP, topic=TOPIC, receipt_handle="h", invisible_duration=long)
    async with served(tmp_path) as (_, stub):
        small = (await receive(invisible_duration=Duration(seconds=1))(stub)).status
        large = (await receive(invisible_duration=long)(stub)).status
        changed = (await stub.ChangeInvisibleDuration(change, metadata=METADATA)).status
        for status, words in ((small, "too small"), (large, "too large"), (changed, "too large")):
            assert status.code == Code.ILLEGAL_INVISIBLE_TIME
            assert f"the invisibleTime is {words}" in status.message


async def test_a_wrong_filter_is_refused_where_it_is_used(tmp_path: Path) -> None:
    """The telemetry stream stays open, ReceiveMessage names the mistake, without private terms of this project."""
    for expression in ("a = ", "a >", "(a = 1", "NOT", "a IN ("):
        bad = d.FilterExpression(type=d.SQL, expression=expression)
        entry = d.SubscriptionEntry(topic=TOPIC, expression=bad)
        settings = d.Settings(subscription=d.Subscription(group=GROUP, subscriptions=[entry]))
        async with served(tmp_path / str(len(expression))) as (_, stub):
            call = stub.Telemetry(metadata=METADATA)
            await call.write(s.TelemetryCommand(settings=settings))
            said = await call.read()
            assert isinstance(said, s.TelemetryCommand)
            assert (said.status.code, said.WhichOneof("command")) == (Code.OK, "settings")
            status = (await receive(filter_expression=bad)(stub)).status
            assert status.code == Code.ILLEGAL_FILTER_EXPRESSION
            assert "sqlglot" not in status.message
            assert "<class" not in status.message
            call.cancel()


async def test_headers_and_fields_of_the_future_are_no_obstacle(tmp_path: Path) -> None:
    """Unknown headers, an unknown language, an empty signature and unknown fields are ignored."""
    more = (
        *METADATA,
        ("authorization", "MQv2-HMAC-SHA1 Credential=, SignedHeaders=x-mq-date-time, Signature=00"),
        ("x-mq-language", "BASIC"),
        ("x-mq-date-time", "yesterday"),
        ("x-mq-future", "x" * 4000),
    )
    async with served(tmp_path) as (_, stub):
        known = s.QueryRouteRequest(topic=TOPIC).SerializeToString()
        unknown = s.QueryRouteRequest.FromString(known + b"\xfa\x7f\x01x")
        answer = await stub.QueryRoute(unknown, metadata=more)
        assert answer.status.code == Code.OK


@pytest.mark.parametrize(
    ("settings", "code"),
    [
        (d.Settings(), Code.BAD_REQUEST),
        (d.Settings(subscription=d.Subscription()), Code.ILLEGAL_CONSUMER_GROUP),
        (d.Settings(publishing=d.Publishing(topics=[Resource(name="a b")])), Code.ILLEGAL_TOPIC),
        (d.Settings(publishing=d.Publishing(topics=[Resource(name="t")] * 2_001)), Code.BAD_REQUEST),
        (d.Settings(publishing=d.Publishing(), user_agent=d.UA(hostname="h" * 300_000)), Code.BAD_REQUEST),
    ],
)
async def test_wrong_settings_are_named_and_the_stream_ends(
    settings: d.Settings, code: "Code.ValueType", tmp_path: Path
) -> None:
    """The reason comes as a command with a status alone; then the stream ends with INVALID_ARGUMENT."""
    async with served(tmp_path) as (_, stub):
        call = stub.Telemetry(metadata=METADATA)
        await call.write(s.TelemetryCommand(settings=settings))
        said = await call.read()
        assert isinstance(said, s.TelemetryCommand)
        assert said.status.code == code
        assert said.WhichOneof("command") is None
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call.read()
        assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT


async def test_offsets_are_kept_and_found(tmp_path: Path) -> None:
    """A committed offset is read back; the ends and a time give offsets. Pulls start at the given offset."""
    async with served(tmp_path) as (_, stub):
        for number in range(3):
            sent = await stub.SendMessage(s.SendMessageRequest(messages=[message(b"%d" % number)]), metadata=METADATA)
            assert [entry.offset for entry in sent.entries] == [number]
        update = s.UpdateOffsetRequest(group=GROUP, message_queue=QUEUE, offset=2)
        assert (await stub.UpdateOffset(update, metadata=METADATA)).status.code == Code.OK
        got = await stub.GetOffset(s.GetOffsetRequest(group=GROUP, message_queue=QUEUE), metadata=METADATA)
        assert (got.status.code, got.offset) == (Code.OK, 2)
        for policy, expected in ((d.QueryOffsetPolicy.BEGINNING, 0), (d.QueryOffsetPolicy.END, 3)):
            query = s.QueryOffsetRequest(message_queue=QUEUE, query_offset_policy=policy)
            assert (await stub.QueryOffset(query, metadata=METADATA)).offset == expected
        pull = s.PullMessageRequest(group=GROUP, message_queue=QUEUE, offset=1, batch_size=1)
        frames = [frame async for frame in stub.PullMessage(pull, metadata=METADATA)]
        assert [frame.WhichOneof("content") for frame in frames] == ["status", "message", "next_offset"]
        assert (frames[1].message.body, frames[2].next_offset) == (b"1", 2)
        beyond = s.PullMessageRequest(group=GROUP, message_queue=QUEUE, offset=9, batch_size=1)
        frames = [frame async for frame in stub.PullMessage(beyond, metadata=METADATA)]
        assert (frames[0].status.code, frames[1].next_offset) == (Code.ILLEGAL_OFFSET, 3)


async def test_a_limit_of_a_topic_counts_what_is_sent_to_it(tmp_path: Path) -> None:
    """A topic's limit counts SendMessage, and refused calls get TOO_MANY_REQUESTS in the answer's status."""
    async with served(tmp_path) as (cluster, stub), Channels() as channels:
        await cluster.create_topic("other", queues=1)
        rules = [flow_control_pb2.FlowRule(topic="t", per_second=0.01)]  # also beyond it after a stall of the machine
        admin = AdminServiceStub(channels.channel_to(cluster.address))
        await admin.UpdateFlowControl(flow_control_pb2.UpdateFlowControlRequest(rules=rules))
        sent = [
            await stub.SendMessage(
                s.SendMessageRequest(messages=[message(topic=Resource(name=name))]), metadata=METADATA
            )
            for name in ("t", "t", "other")
        ]
        assert [one.status.code for one in sent] == [Code.OK, Code.TOO_MANY_REQUESTS, Code.OK]
