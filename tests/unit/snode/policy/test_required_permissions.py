"""The permissions that each method needs, row by row; names show their kind, so that no two can be confused."""

from typing import Any

import pytest

from apache.rocketmq.v2 import definition_pb2 as d
from apache.rocketmq.v2 import service_pb2 as s
from ortoo.common.errors import Invalid
from ortoo.common.groups.handle import Handle, HandleKind
from ortoo.common.groups.handle_seal import HandleSeals
from ortoo.keda import externalscaler_pb2 as scaler
from ortoo.snode.policy.access_rules import ADMIN, Grant, RequiredPermission, Resource
from ortoo.snode.policy.required_permissions import REQUIRED_PERMISSIONS, required_permissions
from ortoo.snode.pop.receipt_handle import ReceiptHandle
from ortoo.v1 import (
    access_pb2,
    admin_pb2,
    client_pb2,
    consumer_pb2,
    dead_letter_pb2,
    delivery_pb2,
    lag_pb2,
    pop_pb2,
    producer_pb2,
    pull_pb2,
    reply_pb2,
    schedule_pb2,
    session_pb2,
    topic_pb2,
)

PUB, SUB, READ = Grant.PUB, Grant.SUB, Grant.SUB | Grant.BROWSE
ANY = PUB | READ
SEALS = HandleSeals()
DELAYED = Handle(HandleKind.DELAYED, "enode-0", 7, 0, 1, 1).encoded(SEALS)
HALF = Handle(HandleKind.TRANSACTION, "enode-0", 7, 0, 1, 0).encoded(SEALS)
LEASED = ReceiptHandle("enode-0", "g", 7, 0, 1, 0, 1).encoded(SEALS)
QUEUE, OTHER = topic_pb2.Queue(topic="t", enode="enode-0"), topic_pb2.Queue(topic="u", enode="enode-0")
SUBSCRIPTIONS = [consumer_pb2.Subscription(topic="t"), consumer_pb2.Subscription(topic="u")]
RECEIPTS = [pop_pb2.LeaseReceipt(receipt_handle="forged"), pop_pb2.LeaseReceipt(receipt_handle=LEASED)]
SCALED = scaler.ScaledObjectRef(scalerMetadata={"group": "g", "topic": "t"})


def topic(name: str, grant: Grant) -> RequiredPermission:
    """A permission on a topic."""
    return RequiredPermission(Resource.TOPIC, name, grant)


def group(name: str = "g", grant: Grant = SUB) -> RequiredPermission:
    """A permission on a group."""
    return RequiredPermission(Resource.GROUP, name, grant)


def named(name: str) -> d.Resource:
    """A name in RocketMQ's protocol."""
    return d.Resource(name=name)


def name_of(topic_id: int) -> str:
    """Topics by their ids."""
    return {7: "of-handle"}.get(topic_id, "")


BOTH = [group(), topic("t", SUB)]
READ_BOTH = [group(grant=READ), topic("t", READ)]
SENT_BY_HANDLE = [topic("of-handle", PUB)]
BY_HANDLE = [group(), topic("of-handle", SUB)]
PLACED = d.MessageQueue(topic=named("q"))
ROWS: list[tuple[str, Any, list[RequiredPermission]]] = [
    ("ProducerService/Publish", producer_pb2.PublishRequest(topic="t"), [topic("t", PUB)]),
    ("ProducerService/Publish", producer_pb2.PublishRequest(topic="t", queue=QUEUE), [topic("t", PUB)]),
    (
        "ProducerService/Publish",
        producer_pb2.PublishRequest(topic="t", queue=OTHER),
        [topic("t", PUB), topic("u", PUB)],
    ),
    ("ProducerService/Publish", producer_pb2.PublishRequest(queue=OTHER), [topic("u", PUB)]),
    *(
        (f"AdminService/{name}", getattr(schedule_pb2, f"{name}Request")(topic="t"), [topic("t", PUB)])
        for name in ("CreateSchedule", "DescribeSchedule", "SuspendSchedule", "ResumeSchedule", "DeleteSchedule")
    ),
    ("ProducerService/Publish", producer_pb2.PublishRequest(), [topic("", PUB)]),
    ("ProducerService/Produce", producer_pb2.ProduceRequest(queue=QUEUE), [topic("t", PUB)]),
    ("ProducerService/RecallMessage", producer_pb2.RecallMessageRequest(recall_handle=DELAYED), SENT_BY_HANDLE),
    (
        "ProducerService/BeginTransaction",
        producer_pb2.BeginTransactionRequest(topic="t", queue=OTHER, producer_group="g"),
        [topic("t", PUB), topic("u", PUB), group("g", PUB)],
    ),
    ("ProducerService/EndTransaction", producer_pb2.EndTransactionRequest(transaction_id=HALF), SENT_BY_HANDLE),
    (
        "ProducerService/WatchTransactionChecks",
        producer_pb2.WatchTransactionChecksRequest(producer_group="g"),
        [group("g", PUB)],
    ),
    ("ProducerService/QueryRoute", producer_pb2.QueryRouteRequest(topic="t"), [topic("t", ANY)]),
    ("ProducerService/QueryRoute", producer_pb2.QueryRouteRequest(topic="t", for_write=True), [topic("t", PUB)]),
    (
        "ConsumerService/Push",
        consumer_pb2.PushRequest(open=consumer_pb2.OpenSession(group="g", subscriptions=SUBSCRIPTIONS)),
        [group(), topic("t", SUB), topic("u", SUB)],
    ),
    (
        "ConsumerService/Push",
        consumer_pb2.PushRequest(subscribe=consumer_pb2.Subscribe(subscriptions=SUBSCRIPTIONS)),
        [topic("t", SUB), topic("u", SUB)],
    ),
    ("ConsumerService/Push", consumer_pb2.PushRequest(close=consumer_pb2.CloseSession()), []),
    (
        "ConsumerService/CommitOffsets",
        pull_pb2.CommitConsumerOffsetsRequest(group="g", offsets=[pull_pb2.ConsumerOffset(queue=QUEUE)]),
        BOTH,
    ),
    (
        "ConsumerService/MeasureQueues",
        pull_pb2.MeasureQueuesRequest(queues=[pull_pb2.MeasuredQueue(queue=QUEUE)]),
        [topic("t", READ)],
    ),
    ("ConsumerService/Ack", pop_pb2.AckRequest(receipts=RECEIPTS), BY_HANDLE),
    ("ConsumerService/Nack", pop_pb2.NackRequest(receipts=RECEIPTS), BY_HANDLE),
    ("ConsumerService/ChangeInvisible", pop_pb2.ChangeInvisibleRequest(receipts=RECEIPTS), BY_HANDLE),
    ("ConsumerService/Pull", pull_pb2.PullRequest(group="g", queue=QUEUE), BOTH),
    (
        "ConsumerService/LockQueues",
        pull_pb2.LockQueuesRequest(group="g", queues=[QUEUE, OTHER]),
        [*BOTH, topic("u", SUB)],
    ),
    ("ConsumerService/QueryMembers", pull_pb2.QueryMembersRequest(group="g"), [group()]),
    ("ConsumerService/Pop", pop_pb2.PopRequest(group="g", topic="t"), BOTH),
    ("ConsumerService/Pop", pop_pb2.PopRequest(group="g", topic="t", attempt_id="a", cancel=True), BOTH),
    ("ConsumerService/Pop", pop_pb2.PopRequest(topic="t"), [topic("t", SUB)]),
    ("DeliveryService/ListDeliveries", delivery_pb2.ListDeliveriesRequest(group="g", topic="t"), READ_BOTH),
    (
        "DeliveryService/ListDeliveries",
        delivery_pb2.ListDeliveriesRequest(group="g", topic="t", queue=OTHER),
        [*READ_BOTH, topic("u", READ)],
    ),
    ("FindingsService/ListFindings", None, [ADMIN]),
    ("ReplyService/Reply", reply_pb2.ReplyRequest(topic="t"), [topic("t", SUB)]),
    ("ConsumerService/QueryQueues", consumer_pb2.QueryQueuesRequest(topic="t"), [topic("t", ANY)]),
    (
        "SessionService/Connect",
        session_pb2.ConnectRequest(register_producer=session_pb2.RegisterProducer(group="g")),
        [group("g", PUB)],
    ),
    (
        "SessionService/Connect",
        session_pb2.ConnectRequest(
            register_consumer=session_pb2.RegisterConsumer(group="g", subscriptions=SUBSCRIPTIONS)
        ),
        [group(), topic("t", SUB), topic("u", SUB)],
    ),
    ("SessionService/Connect", session_pb2.ConnectRequest(hello=session_pb2.Hello(client_id="c")), []),
    ("DeadLetterService/ReplayDeadLetters", dead_letter_pb2.ReplayDeadLettersRequest(group="g"), [group()]),
    (
        "DeadLetterService/ReplayDeadLetters",
        dead_letter_pb2.ReplayDeadLettersRequest(group="g", to_topic="t"),
        [group(), topic("t", PUB)],
    ),
    ("AdminService/DescribeTopic", admin_pb2.DescribeTopicRequest(name="t"), [topic("t", ANY)]),
    (
        "AdminService/DescribeTopics",
        admin_pb2.DescribeTopicsRequest(names=["t", "u"]),
        [topic("t", ANY), topic("u", ANY)],
    ),
    (
        "AdminService/DescribeLag",
        admin_pb2.DescribeLagRequest(group="g", topic="t"),
        [group(grant=READ), topic("t", ANY)],
    ),
    ("AdminService/DescribeGroup", client_pb2.DescribeGroupRequest(name="g"), [group(grant=READ)]),
    ("AdminService/DescribeAccess", access_pb2.DescribeAccessRequest(topics=["t"], groups=["g"]), []),
    ("AdminService/ListLagHistory", lag_pb2.ListLagHistoryRequest(group="g"), [group(grant=READ)]),
    (
        "AdminService/ListLagHistory",
        lag_pb2.ListLagHistoryRequest(group="g", topic="t"),
        [group(grant=READ), topic("t", ANY)],
    ),
    ("AdminService/ListTopics", None, [ADMIN]),
    ("Admin/ChangeLogLevel", None, [ADMIN]),
    ("AdminService/OfTomorrow", None, [ADMIN]),
    ("ExternalScaler/IsActive", SCALED, BOTH),
    ("ExternalScaler/GetMetrics", scaler.GetMetricsRequest(scaledObjectRef=SCALED), BOTH),
    ("ExternalScaler/GetMetricSpec", scaler.ScaledObjectRef(), [group(""), topic("", SUB)]),
    ("MessagingService/QueryRoute", s.QueryRouteRequest(topic=named("t")), [topic("t", ANY)]),
    (
        "MessagingService/SendMessage",
        s.SendMessageRequest(messages=[d.Message(topic=named("t")), d.Message(topic=named("u"))]),
        [topic("t", PUB), topic("u", PUB)],
    ),
    (
        "MessagingService/EndTransaction",
        s.EndTransactionRequest(topic=named("t"), transaction_id=HALF),
        [topic("of-handle", PUB), topic("t", PUB)],
    ),
    (
        "MessagingService/RecallMessage",
        s.RecallMessageRequest(topic=named("t"), recall_handle=f"{DELAYED}.bQ==.more"),
        [topic("of-handle", PUB), topic("t", PUB)],
    ),
    (
        "MessagingService/Telemetry",
        s.TelemetryCommand(settings=d.Settings(publishing=d.Publishing(topics=[named("t"), named("u")]))),
        [topic("t", PUB), topic("u", PUB)],
    ),
    (
        "MessagingService/Telemetry",
        s.TelemetryCommand(
            settings=d.Settings(
                subscription=d.Subscription(group=named("g"), subscriptions=[d.SubscriptionEntry(topic=named("t"))])
            )
        ),
        BOTH,
    ),
    ("MessagingService/Telemetry", s.TelemetryCommand(settings=d.Settings()), []),
    ("MessagingService/Telemetry", s.TelemetryCommand(), []),
    ("MessagingService/AckMessage", s.AckMessageRequest(group=named("g"), topic=named("t")), BOTH),
    ("MessagingService/Heartbeat", s.HeartbeatRequest(group=named("g")), [group()]),
    ("MessagingService/Heartbeat", s.HeartbeatRequest(), []),
    (
        "MessagingService/ReceiveMessage",
        s.ReceiveMessageRequest(group=named("g"), message_queue=PLACED),
        [group(), topic("q", SUB)],
    ),
    ("MessagingService/QueryOffset", s.QueryOffsetRequest(message_queue=PLACED), [topic("q", SUB)]),
]  # fmt: skip
CONSUMING = {
    "ConsumerService/UnlockQueues", "ConsumerService/QueryOffsets", "ConsumerService/NackMessages",
}  # fmt: skip
"""By group and by each topic that they name, like Pull and Pop."""
READING = {
    "ConsumerService/SearchOffset", "ConsumerService/Fetch", "DeadLetterService/ListDeadLetters",
    "DeadLetterService/Peek", "AdminService/Tail", "AdminService/FindMessages", "DeliveryService/ExplainConsumption",
}  # fmt: skip
"""By the same names, like ListDeliveries."""
NAMING = {
    f"MessagingService/{name}"
    for name in (
        "QueryAssignment", "ForwardMessageToDeadLetterQueue", "PullMessage", "UpdateOffset", "GetOffset",
        "NotifyClientTermination", "ChangeInvisibleDuration", "SyncLiteSubscription",
    )
}  # fmt: skip
"""By group and topic, like AckMessage."""
SCALING = {"ExternalScaler/StreamIsActive"}


@pytest.mark.parametrize(("method", "request_", "needs"), ROWS)
def test_a_method_asks_for_what_its_request_touches(
    method: str, request_: Any, needs: list[RequiredPermission]
) -> None:
    """G16: for everything that it names, each with the right grant."""
    assert list(required_permissions(method, request_, name_of)) == needs


def test_methods_that_ask_alike_share_a_rule_and_all_others_are_an_admins() -> None:
    """E-247: a method that moves to another row shows here."""
    alike = (
        ("ConsumerService/Pull", CONSUMING),
        ("DeliveryService/ListDeliveries", READING),
        ("MessagingService/AckMessage", NAMING),
        ("ExternalScaler/IsActive", SCALING),
    )
    for method, others in alike:
        assert {
            one for one in REQUIRED_PERMISSIONS if REQUIRED_PERMISSIONS[one] is REQUIRED_PERMISSIONS[method]
        } >= others
    asked = {method for method, _, _ in ROWS}.union(*(others for _, others in alike))
    assert all(list(required_permissions(one, None, name_of)) == [ADMIN] for one in REQUIRED_PERMISSIONS.keys() - asked)
    assert all(one.startswith(("AdminService/", "SettingsService/")) for one in REQUIRED_PERMISSIONS.keys() - asked)


@pytest.mark.parametrize(
    ("method", "request_", "field"),
    [
        ("ProducerService/RecallMessage", producer_pb2.RecallMessageRequest(recall_handle=HALF), "recall_handle"),
        (
            "ProducerService/EndTransaction",
            producer_pb2.EndTransactionRequest(transaction_id=DELAYED),
            "transaction_id",
        ),
        ("MessagingService/RecallMessage", s.RecallMessageRequest(recall_handle=HALF), "recall_handle"),
    ],
)  # fmt: skip
def test_a_handle_that_is_none_is_refused_by_name(method: str, request_: Any, field: str) -> None:
    """A handle of another kind is malformed too."""
    with pytest.raises(Invalid) as refused:
        list(required_permissions(method, request_, name_of))
    assert refused.value.field == field
