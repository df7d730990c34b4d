"""The rights that each method of the snode needs for a request: a row for each. A method without a row needs an admin.

A handle counts as its content says. If it is forged, the method notices that and refuses it.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ortoo.common.errors import OrtooError
from ortoo.common.groups.handle import HandleKind, read_handle
from ortoo.snode.policy.access_rules import ADMIN, Grant, Need, Resource
from ortoo.snode.pop.receipt_handle import read_receipt

PUB, SUB, ANY = Grant.PUB, Grant.SUB, Grant.PUB | Grant.SUB
NameOf = Callable[[int], str]
"""A topic's name by its id; empty if there is none."""
Needs = Callable[[Any, NameOf], Iterable[Need]]


def needs_of(method: str, request: Any, name_of: NameOf) -> Iterable[Need]:
    """The rights that a request of a method, "ProducerService/Publish", needs. Errors: Invalid (handle)."""
    needs = NEEDS.get(method)
    return (ADMIN,) if needs is None else needs(request, name_of)


def _topic(name: str, grant: Grant) -> Need:
    return Need(Resource.TOPIC, name, grant)


def _group(name: str, grant: Grant = SUB) -> Need:
    return Need(Resource.GROUP, name, grant)


def _consumes(request: Any, _: NameOf) -> list[Need]:
    """A request with `group`, and one of `topic`, `queue` and `queues`; empty fields need no right."""
    needs = [_group(request.group)] if getattr(request, "group", "") else []
    if topic := getattr(request, "topic", ""):
        needs.append(_topic(topic, SUB))
    has_queue = hasattr(request, "queue") and (request.HasField("queue") or not topic)
    queues = [request.queue] if has_queue else getattr(request, "queues", ())
    needs += [_topic(queue.topic, SUB) for queue in queues]
    return needs


def _commits(request: Any, _: NameOf) -> list[Need]:
    return [_group(request.group), *(_topic(one.queue.topic, SUB) for one in request.offsets)]


def _leases(request: Any, name_of: NameOf) -> list[Need]:
    needs = []
    for receipt in request.receipts:
        try:
            handle = read_receipt(receipt.receipt_handle, None)
        except OrtooError:
            continue  # it needs no right, and the method refuses it
        needs += [_group(handle.group), _topic(name_of(handle.topic_id), SUB)]
    return needs


def _subscriptions(subscriptions: Iterable[Any]) -> list[Need]:
    return [_topic(one.topic, SUB) for one in subscriptions]


def _pushes(request: Any, _: NameOf) -> list[Need]:
    match request.WhichOneof("event"):
        case "open":
            return [_group(request.open.group), *_subscriptions(request.open.subscriptions)]
        case "subscribe":
            return _subscriptions(request.subscribe.subscriptions)
        case _:
            return []


def _connects(request: Any, _: NameOf) -> list[Need]:
    match request.WhichOneof("event"):
        case "register_producer":
            return [_group(request.register_producer.group, PUB)]
        case "register_consumer":
            wish = request.register_consumer
            return [_group(wish.group), *_subscriptions(wish.subscriptions)]
        case _:
            return []


def _route(request: Any, _: NameOf) -> list[Need]:
    return [_topic(request.topic, PUB if request.to_send else ANY)]


def _sends(request: Any, _: NameOf) -> list[Need]:
    """The topic that a request names and that of its queue, which may be another one."""
    queued = request.queue.topic if request.HasField("queue") else ""
    return [_topic(name, PUB) for name in dict.fromkeys(filter(None, (request.topic, queued))) or [""]]


def _recall(request: Any, name_of: NameOf) -> list[Need]:
    handle = read_handle(request.recall_handle, HandleKind.DELAYED, "recall_handle", None)
    return [_topic(name_of(handle.topic_id), PUB)]


def _verdict(request: Any, name_of: NameOf) -> list[Need]:
    handle = read_handle(request.transaction_id, HandleKind.TRANSACTION, "transaction_id", None)
    return [_topic(name_of(handle.topic_id), PUB)]


def _replay(request: Any, _: NameOf) -> list[Need]:
    return [_group(request.group), *([_topic(request.to_topic, PUB)] if request.to_topic else [])]


def _names(request: Any, _: NameOf) -> list[Need]:
    """RocketMQ's requests name group and topic in messages."""
    fields = request.DESCRIPTOR.fields_by_name
    needs = [_group(request.group.name)] if "group" in fields and request.group.name else []
    if "topic" in fields:
        needs.append(_topic(request.topic.name, SUB))
    if "message_queue" in fields:
        needs.append(_topic(request.message_queue.topic.name, SUB))
    return needs


def _telemetry(command: Any, _: NameOf) -> list[Need]:
    if command.WhichOneof("command") != "settings":
        return []
    settings = command.settings
    if settings.HasField("publishing"):
        return [_topic(topic.name, PUB) for topic in settings.publishing.topics]
    if settings.HasField("subscription"):
        wish = settings.subscription
        return [_group(wish.group.name), *(_topic(one.topic.name, SUB) for one in wish.subscriptions)]
    return []


def _rocketmq_recall(request: Any, name_of: NameOf) -> list[Need]:
    handle = read_handle(request.recall_handle.partition(".")[0], HandleKind.DELAYED, "recall_handle", None)
    return [_topic(name_of(handle.topic_id), PUB), _topic(request.topic.name, PUB)]


def _rocketmq_verdict(request: Any, name_of: NameOf) -> list[Need]:
    return [*_verdict(request, name_of), _topic(request.topic.name, PUB)]


def _scales(request: Any, _: NameOf) -> list[Need]:
    said = getattr(request, "scaledObjectRef", request).scalerMetadata
    return [_group(said.get("group", "")), _topic(said.get("topic", ""), SUB)]


def _admins(request: Any, _: NameOf) -> tuple[Need]:
    """Requests that change or show the cluster or other users' clients."""
    return (ADMIN,)


NEEDS: Mapping[str, Needs] = {
    **{f"ProducerService/{name}": _sends for name in ("Publish", "BeginTransaction")},
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
        for name in ("Pull", "QueryMembers", "LockQueues", "UnlockQueues", "QueryOffsets", "SearchOffset", "SendBack")
    },
    **{f"ConsumerService/{name}": _consumes for name in ("Pop", "Fetch")},
    "ConsumerService/QueryQueues": lambda request, _: [_topic(request.topic, ANY)],
    "SessionService/Connect": _connects,
    **{f"DeadLetterService/{name}": _consumes for name in ("ListDeadLetters", "Peek")},
    "DeadLetterService/ReplayDeadLetters": _replay,
    "AdminService/DescribeTopic": lambda request, _: [_topic(request.name, ANY)],
    **{f"AdminService/{name}": _consumes for name in ("Tail", "FindMessages")},
    "AdminService/DescribeLag": lambda request, _: [_group(request.group), _topic(request.topic, ANY)],
    "AdminService/DescribeGroup": lambda request, _: [_group(request.name)],
    "Admin/ChangeLogLevel": _admins,
    "FindingsService/ListFindings": _admins,
    **{f"SettingsService/{name}": _admins for name in ("ListSettings", "UpdateSettings", "ListSettingChanges")},
    **{f"DeliveryService/{name}": _consumes for name in ("ListDeliveries", "ExplainConsumption")},
    **{
        f"AdminService/{name}": _admins
        for name in (
            *("CreateTopic", "UpdateTopic", "DeleteTopic", "ListTopics", "ListDelayedMessages", "ListTopicGroups"),
            *("PutGroup", "UpdateGroup", "DeleteGroup", "ListGroups", "ResetOffsets", "CloneOffsets"),
            *("PutUser", "DeleteUser", "ListUsers", "DescribeCluster", "ListTransactions", "ResumeTransaction"),
            *("ListClients", "DescribeClient", "CallClient", "ListConsumers", "SetDeliveryMode", "ListDeliveryModes"),
            *("DescribeFlowControl", "UpdateFlowControl", "UndeleteTopic", "ListDeletedTopics"),
            *("ListOfferedTopics", "AdoptTopics", "UndeleteGroup", "ListDeletedGroups"),
            *("ListMembers", "HandOver", "ElectMember", "AddMember", "RemoveMember", "AcceptStore"),
        )
    },
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
