"""The Ortoo SDK: producers and consumers.

    import asyncio

    from ortoo.client import Message, connect


    async def main() -> None:
        async with connect("localhost:8081") as mq, mq.producer("orders") as producer:
            print((await producer.send(Message(b"hello"))).message_id)


    asyncio.run(main())

`ortoo.client.blocking` has the same calls for programs without an event loop.
A name is imported at its first use, so that a program loads only the parts of the client that it uses.
"""

from typing import TYPE_CHECKING, Any

import ortoo.common as _common  # noqa: F401  # before gRPC, whose options it sets

if TYPE_CHECKING:
    from ortoo.client.admin.admin import Admin
    from ortoo.client.admin.descriptions import (
        ClientDescription,
        ClientInfo,
        ClientQueue,
        ClusterInfo,
        ConsumeDirectlyResult,
        DeadLetter,
        DelayedMessage,
        DeletedGroup,
        FoundMessages,
        GroupChanges,
        GroupDescription,
        GroupInfo,
        GroupMemberInfo,
        OpenTransaction,
        PeekedMessage,
        ProcessInfo,
        QueueOffset,
        ReplayProgress,
        TopicMode,
        TopicProgress,
    )
    from ortoo.client.admin.enodes.replicas import (
        DiskState,
        ForgottenEnode,
        ReplicaAdmin,
        ReplicaDisk,
        ReplicaInfo,
        ReplicaSetInfo,
    )
    from ortoo.client.admin.groups import GroupAdmin
    from ortoo.client.admin.lag import GroupLag, LagByState, LagHistory, LagSample, QueueLag
    from ortoo.client.admin.operations import (
        ClusterFinding,
        Explanation,
        MessageDeliveries,
        MessageDelivery,
        ParkedMessages,
        ProcessSettings,
        Reason,
    )
    from ortoo.client.admin.schedules import ListedSchedules, ScheduleAdmin, ScheduleInfo
    from ortoo.client.admin.sinks import ListedSinks, SinkAdmin, SinkInfo
    from ortoo.client.admin.topics import (
        Adoption,
        DeletedTopic,
        OrphanedTopic,
        QueueInfo,
        TopicDescription,
        TopicInfo,
        TopicPlacement,
        TrimmedQueue,
    )
    from ortoo.client.admin.users import (
        AccessPermissions,
        AccessRoles,
        AuditEntries,
        AuditEntry,
        CallerAccess,
        GrantedAccess,
        NamePermission,
        RoleDescription,
        RolePermissions,
        UserAdmin,
        UserInfo,
        UserPermissions,
    )
    from ortoo.client.app import Client, connect
    from ortoo.client.apps.app import App
    from ortoo.client.apps.avro import avro_schema
    from ortoo.client.apps.running import RunningApp
    from ortoo.client.apps.topic_producer import TopicProducer
    from ortoo.client.core.closed import ClientClosed, ConsumerClosed
    from ortoo.client.core.filters import Filter, Sql
    from ortoo.client.core.handlers import RetryLater
    from ortoo.client.core.queues import Queue, Receipt
    from ortoo.client.core.received import ReceivedBatch, ReceivedMessage
    from ortoo.client.offsets.losses import LostMessages
    from ortoo.client.pop.consumer import PopConsumer
    from ortoo.client.pop.popped import PoppedMessage
    from ortoo.client.pop.settings import PopSettings
    from ortoo.client.produce.producer import Producer
    from ortoo.client.produce.producer_batch import SendFuture, SendFutures
    from ortoo.client.produce.producer_settings import ProducerSettings
    from ortoo.client.produce.transactions import (
        Transaction,
        TransactionalProducer,
        TransactionCheck,
        TransactionVerdict,
    )
    from ortoo.client.pull.consumer import PullConsumer
    from ortoo.client.pull.flow_control import FlowLimits
    from ortoo.client.pull.pull_call import PullResult, PullStatus
    from ortoo.client.pull.pull_handlers import CommitVerdict
    from ortoo.client.pull.settings import HandlerOptions, PullSettings
    from ortoo.client.push.consumer import Consumer, ConsumerSettings
    from ortoo.client.read.tailing import StoredMessage
    from ortoo.client.requests.replies import RequestTimeout
    from ortoo.common.errors import (
        AlreadyExists,
        Conflict,
        DataLoss,
        Fenced,
        Forbidden,
        Internal,
        Invalid,
        NotFound,
        OrtooError,
        OutOfRange,
        Overloaded,
        Unavailable,
        Unsupported,
    )
    from ortoo.common.groups.allocation import AllocationStrategy
    from ortoo.common.groups.requests import RequestOptions
    from ortoo.common.records.compression import Codec
    from ortoo.common.records.message import Message

__all__ = [
    "AccessPermissions",
    "AccessRoles",
    "Admin",
    "Adoption",
    "AllocationStrategy",
    "AlreadyExists",
    "App",
    "AuditEntries",
    "AuditEntry",
    "CallerAccess",
    "Client",
    "ClientClosed",
    "ClientDescription",
    "ClientInfo",
    "ClientQueue",
    "ClusterFinding",
    "ClusterInfo",
    "Codec",
    "CommitVerdict",
    "Conflict",
    "ConsumeDirectlyResult",
    "Consumer",
    "ConsumerClosed",
    "ConsumerSettings",
    "DataLoss",
    "DeadLetter",
    "DelayedMessage",
    "DeletedGroup",
    "DeletedTopic",
    "DiskState",
    "Explanation",
    "Fenced",
    "Filter",
    "FlowLimits",
    "Forbidden",
    "ForgottenEnode",
    "FoundMessages",
    "GrantedAccess",
    "GroupAdmin",
    "GroupChanges",
    "GroupDescription",
    "GroupInfo",
    "GroupLag",
    "GroupMemberInfo",
    "HandlerOptions",
    "Internal",
    "Invalid",
    "LagByState",
    "LagHistory",
    "LagSample",
    "ListedSchedules",
    "ListedSinks",
    "LostMessages",
    "Message",
    "MessageDeliveries",
    "MessageDelivery",
    "NamePermission",
    "NotFound",
    "OpenTransaction",
    "OrphanedTopic",
    "OrtooError",
    "OutOfRange",
    "Overloaded",
    "ParkedMessages",
    "PeekedMessage",
    "PopConsumer",
    "PopSettings",
    "PoppedMessage",
    "ProcessInfo",
    "ProcessSettings",
    "Producer",
    "ProducerSettings",
    "PullConsumer",
    "PullResult",
    "PullSettings",
    "PullStatus",
    "Queue",
    "QueueInfo",
    "QueueLag",
    "QueueOffset",
    "Reason",
    "Receipt",
    "ReceivedBatch",
    "ReceivedMessage",
    "ReplayProgress",
    "ReplicaAdmin",
    "ReplicaDisk",
    "ReplicaInfo",
    "ReplicaSetInfo",
    "RequestOptions",
    "RequestTimeout",
    "RetryLater",
    "RoleDescription",
    "RolePermissions",
    "RunningApp",
    "ScheduleAdmin",
    "ScheduleInfo",
    "SendFuture",
    "SendFutures",
    "SinkAdmin",
    "SinkInfo",
    "Sql",
    "StoredMessage",
    "TopicDescription",
    "TopicInfo",
    "TopicMode",
    "TopicPlacement",
    "TopicProducer",
    "TopicProgress",
    "Transaction",
    "TransactionCheck",
    "TransactionVerdict",
    "TransactionalProducer",
    "TrimmedQueue",
    "Unavailable",
    "Unsupported",
    "UserAdmin",
    "UserInfo",
    "UserPermissions",
    "avro_schema",
    "connect",
]

_MODULES: dict[str, tuple[str, ...]] = {
    "ortoo.client.admin.admin": ("Admin",),
    "ortoo.client.admin.descriptions": (
        "ClientDescription",
        "ClientInfo",
        "ClientQueue",
        "ClusterInfo",
        "ConsumeDirectlyResult",
        "DeadLetter",
        "DelayedMessage",
        "DeletedGroup",
        "FoundMessages",
        "GroupChanges",
        "GroupDescription",
        "GroupInfo",
        "GroupMemberInfo",
        "OpenTransaction",
        "PeekedMessage",
        "ProcessInfo",
        "QueueOffset",
        "ReplayProgress",
        "TopicMode",
        "TopicProgress",
    ),
    "ortoo.client.admin.groups": ("GroupAdmin",),
    "ortoo.client.admin.lag": ("GroupLag", "LagByState", "LagHistory", "LagSample", "QueueLag"),
    "ortoo.client.admin.operations": (
        "ClusterFinding",
        "Explanation",
        "MessageDeliveries",
        "MessageDelivery",
        "ParkedMessages",
        "ProcessSettings",
        "Reason",
    ),
    "ortoo.client.admin.enodes.replicas": (
        "DiskState",
        "ForgottenEnode",
        "ReplicaAdmin",
        "ReplicaDisk",
        "ReplicaInfo",
        "ReplicaSetInfo",
    ),
    "ortoo.client.admin.schedules": ("ListedSchedules", "ScheduleAdmin", "ScheduleInfo"),
    "ortoo.client.admin.sinks": ("ListedSinks", "SinkAdmin", "SinkInfo"),
    "ortoo.client.admin.topics": (
        "Adoption",
        "DeletedTopic",
        "OrphanedTopic",
        "QueueInfo",
        "TopicDescription",
        "TopicInfo",
        "TopicPlacement",
        "TrimmedQueue",
    ),
    "ortoo.client.admin.users": (
        "AccessPermissions",
        "AccessRoles",
        "AuditEntries",
        "AuditEntry",
        "CallerAccess",
        "GrantedAccess",
        "NamePermission",
        "RoleDescription",
        "RolePermissions",
        "UserAdmin",
        "UserInfo",
        "UserPermissions",
    ),
    "ortoo.client.app": ("Client", "connect"),
    "ortoo.client.apps.app": ("App",),
    "ortoo.client.apps.avro": ("avro_schema",),
    "ortoo.client.apps.running": ("RunningApp",),
    "ortoo.client.apps.topic_producer": ("TopicProducer",),
    "ortoo.client.core.closed": ("ClientClosed", "ConsumerClosed"),
    "ortoo.client.core.filters": ("Filter", "Sql"),
    "ortoo.client.core.handlers": ("RetryLater",),
    "ortoo.client.core.queues": ("Queue", "Receipt"),
    "ortoo.client.core.received": ("ReceivedBatch", "ReceivedMessage"),
    "ortoo.client.requests.replies": ("RequestTimeout",),
    "ortoo.client.offsets.losses": ("LostMessages",),
    "ortoo.client.pop.consumer": ("PopConsumer",),
    "ortoo.client.pop.popped": ("PoppedMessage",),
    "ortoo.client.pop.settings": ("PopSettings",),
    "ortoo.client.produce.producer": ("Producer",),
    "ortoo.client.produce.producer_batch": ("SendFuture", "SendFutures"),
    "ortoo.client.produce.producer_settings": ("ProducerSettings",),
    "ortoo.client.produce.transactions": (
        "Transaction",
        "TransactionalProducer",
        "TransactionCheck",
        "TransactionVerdict",
    ),
    "ortoo.client.pull.consumer": ("PullConsumer",),
    "ortoo.client.pull.flow_control": ("FlowLimits",),
    "ortoo.client.pull.pull_call": ("PullResult", "PullStatus"),
    "ortoo.client.pull.pull_handlers": ("CommitVerdict",),
    "ortoo.client.pull.settings": ("HandlerOptions", "PullSettings"),
    "ortoo.client.push.consumer": ("Consumer", "ConsumerSettings"),
    "ortoo.client.read.tailing": ("StoredMessage",),
    "ortoo.common.errors": (
        "AlreadyExists",
        "Conflict",
        "DataLoss",
        "Fenced",
        "Forbidden",
        "Internal",
        "Invalid",
        "NotFound",
        "OrtooError",
        "OutOfRange",
        "Overloaded",
        "Unavailable",
        "Unsupported",
    ),
    "ortoo.common.groups.allocation": ("AllocationStrategy",),
    "ortoo.common.groups.requests": ("RequestOptions",),
    "ortoo.common.records.compression": ("Codec",),
    "ortoo.common.records.message": ("Message",),
}
"""The public names by module. The interpreter uses them; type checkers use the imports above."""
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    """Import a public name at its first use. Errors: AttributeError."""
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = globals()[name] = getattr(import_module(_MODULE_OF[name]), name)
    return value


def __dir__() -> list[str]:
    """The public names, imported or not."""
    return [*globals(), *(name for name in _MODULE_OF if name not in globals())]
