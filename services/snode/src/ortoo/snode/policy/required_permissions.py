"""The permissions that each method of the snode needs for a request.

A method that is not listed needs an admin: it changes or shows the cluster or other users' clients.

A request with a handle needs the permissions for the topic and group in it. The method refuses a forged handle.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ortoo.common.errors import OrtooError
from ortoo.common.groups.handle import HandleKind, read_handle
from ortoo.snode.policy.access_rules import ADMIN, EVERY_GRANT, READING, Grant, RequiredPermission, Resource
from ortoo.snode.pop.receipt_handle import read_receipt

PUB, SUB, ANY = Grant.PUB, Grant.SUB, EVERY_GRANT
TopicNameOf = Callable[[int], str]
"""Returns the name of the topic with this id; empty if there is no such topic."""
PermissionsOf = Callable[[Any, TopicNameOf], Iterable[RequiredPermission]]


def required_permissions(method: str, request: Any, name_of: TopicNameOf) -> Iterable[RequiredPermission]:
    """The permissions that a request needs; `method` is, for example, "ProducerService/Publish".

    Errors: Invalid for a malformed handle.
    """
    permissions_of = REQUIRED_PERMISSIONS.get(method)
    return (ADMIN,) if permissions_of is None else permissions_of(request, name_of)


def is_observation(method: str) -> bool:
    """Whether an observer may call this method, whatever its requests name."""
    return method in OBSERVATIONS


def _topic(name: str, grant: Grant) -> RequiredPermission:
    return RequiredPermission(Resource.TOPIC, name, grant)


def _group(name: str, grant: Grant = SUB) -> RequiredPermission:
    return RequiredPermission(Resource.GROUP, name, grant)


def _uses(request: Any, grant: Grant) -> list[RequiredPermission]:
    """Permissions for the `group` and for `topic`, `queue` or `queues`, as far as the request has these fields."""
    needs = [_group(request.group, grant)] if getattr(request, "group", "") else []
    if topic := getattr(request, "topic", ""):
        needs.append(_topic(topic, grant))
    has_queue = hasattr(request, "queue") and (request.HasField("queue") or not topic)
    queues = [request.queue] if has_queue else getattr(request, "queues", ())
    needs += [_topic(queue.topic, grant) for queue in queues]
    return needs


def _consumes(request: Any, _: TopicNameOf) -> list[RequiredPermission]:
    return _uses(request, SUB)


def _reads(request: Any, _: TopicNameOf) -> list[RequiredPermission]:
    """Permissions for a request that takes no lease and moves no offset."""
    return _uses(request, READING)


def _commits(request: Any, _: TopicNameOf) -> list[RequiredPermission]:
    return [_group(request.group), *(_topic(one.queue.topic, SUB) for one in request.offsets)]


def _leases(request: Any, name_of: TopicNameOf) -> list[RequiredPermission]:
    needs = []
    for receipt in request.receipts:
        try:
            handle = read_receipt(receipt.receipt_handle, None)
        except OrtooError:
            continue  # it needs no permission, and the method refuses it
        needs += [_group(handle.group), _topic(name_of(handle.topic_id), SUB)]
    return needs


def _subscriptions(subscriptions: Iterable[Any]) -> list[RequiredPermission]:
    return [_topic(one.topic, SUB) for one in subscriptions]


def _pushes(request: Any, _: TopicNameOf) -> list[RequiredPermission]:
    match request.WhichOneof("event"):
        case "open":
            return [_group(request.open.group), *_subscriptions(request.open.subscriptions)]
        case "subscribe":
            return _subscriptions(request.subscribe.subscriptions)
        case _:
            return []


def _connects(request: Any, _: TopicNameOf) -> list[RequiredPermission]:
    match request.WhichOneof("event"):
        case "register_producer":
            return [_group(request.register_producer.group, PUB)]
        case "register_consumer":
            registration = request.register_consumer
            return [_group(registration.group), *_subscriptions(registration.subscriptions)]
        case _:
            return []


def _route(request: Any, _: TopicNameOf) -> list[RequiredPermission]:
    return [_topic(request.topic, PUB if request.for_write else ANY)]


def _sends(request: Any, _: TopicNameOf) -> list[RequiredPermission]:
    """Permissions for the topic of the request and for the topic of its queue, which may differ."""
    queued = request.queue.topic if request.HasField("queue") else ""
    return [_topic(name, PUB) for name in dict.fromkeys(filter(None, (request.topic, queued))) or [""]]


def _schedules(request: Any, _: TopicNameOf) -> list[RequiredPermission]:
    return [_topic(request.topic, PUB)]


def _begins(request: Any, name_of: TopicNameOf) -> list[RequiredPermission]:
    """As `_sends`, and for the producer group, whose members receive the checks with the messages."""
    return [*_sends(request, name_of), _group(request.producer_group, PUB)]


def _recall(request: Any, name_of: TopicNameOf) -> list[RequiredPermission]:
    handle = read_handle(request.recall_handle, HandleKind.DELAYED, "recall_handle", None)
    return [_topic(name_of(handle.topic_id), PUB)]


def _verdict(request: Any, name_of: TopicNameOf) -> list[RequiredPermission]:
    handle = read_handle(request.transaction_id, HandleKind.TRANSACTION, "transaction_id", None)
    return [_topic(name_of(handle.topic_id), PUB)]


def _replay(request: Any, _: TopicNameOf) -> list[RequiredPermission]:
    return [_group(request.group), *([_topic(request.to_topic, PUB)] if request.to_topic else [])]


def _names(request: Any, _: TopicNameOf) -> list[RequiredPermission]:
    """Permissions for RocketMQ's requests, which have the names of group and topic in nested messages."""
    fields = request.DESCRIPTOR.fields_by_name
    needs = [_group(request.group.name)] if "group" in fields and request.group.name else []
    if "topic" in fields:
        needs.append(_topic(request.topic.name, SUB))
    if "message_queue" in fields:
        needs.append(_topic(request.message_queue.topic.name, SUB))
    return needs


def _telemetry(command: Any, _: TopicNameOf) -> list[RequiredPermission]:
    if command.WhichOneof("command") != "settings":
        return []
    settings = command.settings
    if settings.HasField("publishing"):
        return [_topic(topic.name, PUB) for topic in settings.publishing.topics]
    if settings.HasField("subscription"):
        subscription = settings.subscription
        return [_group(subscription.group.name), *(_topic(one.topic.name, SUB) for one in subscription.subscriptions)]
    return []


def _rocketmq_recall(request: Any, name_of: TopicNameOf) -> list[RequiredPermission]:
    handle = read_handle(request.recall_handle.partition(".")[0], HandleKind.DELAYED, "recall_handle", None)
    return [_topic(name_of(handle.topic_id), PUB), _topic(request.topic.name, PUB)]


def _rocketmq_verdict(request: Any, name_of: TopicNameOf) -> list[RequiredPermission]:
    return [*_verdict(request, name_of), _topic(request.topic.name, PUB)]


def _scales(request: Any, _: TopicNameOf) -> list[RequiredPermission]:
    metadata = getattr(request, "scaledObjectRef", request).scalerMetadata
    return [_group(metadata.get("group", "")), _topic(metadata.get("topic", ""), SUB)]


def _signed_in(request: Any, _: TopicNameOf) -> tuple[()]:
    """A signature is enough for requests about the caller itself."""
    return ()


REQUIRED_PERMISSIONS: Mapping[str, PermissionsOf] = {
    "ProducerService/Publish": _sends,
    "ProducerService/BeginTransaction": _begins,
    "ProducerService/Produce": lambda request, _: [_topic(request.queue.topic, PUB)],
    "ProducerService/RecallMessage": _recall,
    "ProducerService/EndTransaction": _verdict,
    "ProducerService/WatchTransactionChecks": lambda request, _: [_group(request.producer_group, PUB)],
    "ProducerService/QueryRoute": _route,
    "ConsumerService/Push": _pushes,
    "ConsumerService/CommitOffsets": _commits,
    **{f"ConsumerService/{name}": _leases for name in ("Ack", "Nack", "ChangeInvisible")},
    **{
        f"ConsumerService/{name}": _consumes
        for name in (
            "Pull",
            "QueryMembers",
            "LockQueues",
            "UnlockQueues",
            "QueryOffsets",
            "NackMessages",
            "Pop",
        )
    },
    **{f"ConsumerService/{name}": _reads for name in ("Fetch", "SearchOffset")},
    "ConsumerService/MeasureQueues": lambda request, _: [_topic(one.queue.topic, READING) for one in request.queues],
    "ConsumerService/QueryQueues": lambda request, _: [_topic(request.topic, ANY)],
    "SessionService/Connect": _connects,
    "ReplyService/Reply": _consumes,
    **{f"DeadLetterService/{name}": _reads for name in ("ListDeadLetters", "Peek")},
    "DeadLetterService/ReplayDeadLetters": _replay,
    "AdminService/DescribeTopic": lambda request, _: [_topic(request.name, ANY)],
    "AdminService/DescribeTopics": lambda request, _: (
        [_topic(name, ANY) for name in request.names] or [_topic("", ANY)]
    ),
    **{f"AdminService/{name}": _reads for name in ("Tail", "FindMessages")},
    "AdminService/DescribeLag": lambda request, _: [_group(request.group, READING), _topic(request.topic, ANY)],
    "AdminService/ListLagHistory": lambda request, _: [
        _group(request.group, READING),
        *([_topic(request.topic, ANY)] if request.topic else []),
    ],
    **{f"AdminService/{name}": _schedules for name in ("CreateSchedule", "DescribeSchedule")},
    **{f"AdminService/{name}": _schedules for name in ("SuspendSchedule", "ResumeSchedule", "DeleteSchedule")},
    "AdminService/DescribeGroup": lambda request, _: [_group(request.name, READING)],
    "AdminService/DescribeAccess": _signed_in,
    **{f"DeliveryService/{name}": _reads for name in ("ListDeliveries", "ExplainConsumption")},
    **{f"ExternalScaler/{name}": _scales for name in ("IsActive", "StreamIsActive", "GetMetricSpec", "GetMetrics")},
    "MessagingService/QueryRoute": lambda request, _: [_topic(request.topic.name, ANY)],
    "MessagingService/SendMessage": lambda request, _: [_topic(one.topic.name, PUB) for one in request.messages],
    "MessagingService/EndTransaction": _rocketmq_verdict,
    "MessagingService/Telemetry": _telemetry,
    "MessagingService/RecallMessage": _rocketmq_recall,
    **{
        f"MessagingService/{name}": _names
        for name in (
            *("Heartbeat", "QueryAssignment", "ReceiveMessage", "AckMessage", "ForwardMessageToDeadLetterQueue"),
            *("PullMessage", "UpdateOffset", "GetOffset", "QueryOffset", "NotifyClientTermination"),
            *("ChangeInvisibleDuration", "SyncLiteSubscription"),
        )
    },
}
OBSERVATIONS = frozenset(
    {
        *(f"ConsumerService/{name}" for name in ("QueryMembers", "QueryOffsets", "QueryQueues", "MeasureQueues")),
        *(f"DeliveryService/{name}" for name in ("ListDeliveries", "ExplainConsumption")),
        *(f"AdminService/{name}" for name in ("DescribeTopic", "DescribeTopics", "ListTopics", "ListTopicGroups")),
        *(f"AdminService/{name}" for name in ("DescribeGroup", "DescribeLag", "ListLagHistory", "ListGroups")),
        *(f"AdminService/{name}" for name in ("ListClients", "DescribeClient", "ListConsumers", "ListUsers")),
        *(f"AdminService/{name}" for name in ("DescribeCluster", "ListReplicas", "ListDisks", "DescribeFlowControl")),
        *(f"AdminService/{name}" for name in ("ListDelayedMessages", "ListTransactions", "ListSchedules", "ListSinks")),
        *(f"AdminService/{name}" for name in ("ListDeletedTopics", "ListDeletedGroups", "ListOrphanedTopics")),
        "AdminService/ListDeliveryModes",
        "FindingsService/ListFindings",
        *(f"SettingsService/{name}" for name in ("ListSettings", "ListSettingChanges")),
        *(f"ExternalScaler/{name}" for name in ("IsActive", "StreamIsActive", "GetMetricSpec", "GetMetrics")),
    }
)
"""The methods that change nothing and whose answers contain no message."""
