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
from ortoo.client.names.modules import MODULE_OF as _MODULE_OF

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
