"""The Ortoo SDK: producers and consumers.

async with ortoo.client.connect("localhost:8081") as mq:
async with mq.producer("orders") as producer:
receipt = await producer.send(Message(b"hello"))

`ortoo.client.blocking` has the same for programs without an event loop.
"""

from ortoo.client.admin import Admin
from ortoo.client.client import Client, connect
from ortoo.client.consumer import Consumer, ConsumerSettings
from ortoo.client.dead_letters import DeadLetter, PeekedMessage, ReplayProgress
from ortoo.client.descriptions import (
    ClusterInfo,
    DelayedMessage,
    FoundMessages,
    GroupInfo,
    GroupLag,
    OpenTransaction,
    ProcessInfo,
    QueueInfo,
    QueueLag,
    StoredMessage,
    TopicDescription,
    TopicInfo,
    TopicPlacement,
)
from ortoo.client.filters import Filter, Sql
from ortoo.client.flow_control import FlowLimits
from ortoo.client.group_admin import GroupAdmin
from ortoo.client.group_descriptions import (
    ClientDescription,
    ClientInfo,
    ClientQueue,
    DirectResult,
    GroupDescription,
    MemberInfo,
    QueueOffset,
    TopicMode,
    TopicProgress,
)
from ortoo.client.handling import Handling
from ortoo.client.handling_in_order import CommitVerdict
from ortoo.client.losses import LostMessages
from ortoo.client.parcel import Sending, Sendings
from ortoo.client.place import Queue, Receipt
from ortoo.client.pop_consumer import PopConsumer, PopSettings
from ortoo.client.popped import PoppedMessage
from ortoo.client.producer import Producer, ProducerSettings
from ortoo.client.pull_consumer import PullConsumer
from ortoo.client.pull_settings import PullSettings
from ortoo.client.pulling import Pulled, PullStatus
from ortoo.client.received import ReceivedBatch, ReceivedMessage
from ortoo.client.retry_later import RetryLater
from ortoo.client.transactions import Transaction, TransactionalProducer, TransactionCheck, Verdict
from ortoo.common.allocation import AllocationStrategy
from ortoo.common.compression import Codec
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
from ortoo.common.message import Message

__all__ = [
    "Admin",
    "AllocationStrategy",
    "AlreadyExists",
    "Client",
    "ClientDescription",
    "ClientInfo",
    "ClientQueue",
    "ClusterInfo",
    "Codec",
    "CommitVerdict",
    "Conflict",
    "Consumer",
    "ConsumerSettings",
    "DataLoss",
    "DeadLetter",
    "DelayedMessage",
    "DirectResult",
    "Fenced",
    "Filter",
    "FlowLimits",
    "Forbidden",
    "FoundMessages",
    "GroupAdmin",
    "GroupDescription",
    "GroupInfo",
    "GroupLag",
    "Handling",
    "Internal",
    "Invalid",
    "LostMessages",
    "MemberInfo",
    "Message",
    "NotFound",
    "OpenTransaction",
    "OrtooError",
    "OutOfRange",
    "Overloaded",
    "PeekedMessage",
    "PopConsumer",
    "PopSettings",
    "PoppedMessage",
    "ProcessInfo",
    "Producer",
    "ProducerSettings",
    "PullConsumer",
    "PullSettings",
    "PullStatus",
    "Pulled",
    "Queue",
    "QueueInfo",
    "QueueLag",
    "QueueOffset",
    "Receipt",
    "ReceivedBatch",
    "ReceivedMessage",
    "ReplayProgress",
    "RetryLater",
    "Sending",
    "Sendings",
    "Sql",
    "StoredMessage",
    "TopicDescription",
    "TopicInfo",
    "TopicMode",
    "TopicPlacement",
    "TopicProgress",
    "Transaction",
    "TransactionCheck",
    "TransactionalProducer",
    "Unavailable",
    "Unsupported",
    "Verdict",
    "connect",
]
