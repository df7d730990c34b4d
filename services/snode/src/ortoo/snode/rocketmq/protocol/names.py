"""Checks names of topics, groups and lite topics, and derives the stored topic of a lite topic."""

import re
from functools import lru_cache

from apache.rocketmq.v2.definition_pb2 import Code, Resource
from ortoo.common.cluster.names import TOPIC_NAME_LENGTH_MAX, check_topic_name
from ortoo.common.groups.group_topics import LITE_PREFIX, RETRY_PREFIX, parent_of_topic
from ortoo.snode.cluster.group_names import check_consumer_group
from ortoo.snode.rocketmq.protocol.codes import GrpcProxyError

SYSTEM_TOPICS = frozenset({
    "TBW102", "SCHEDULE_TOPIC_XXXX", "BenchmarkTest", "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRACE_TOPIC",
    "RMQ_SYS_TRANS_OP_HALF_TOPIC", "TRANS_CHECK_MAX_TIME_TOPIC", "SELF_TEST_TOPIC", "OFFSET_MOVED_EVENT",
    "CHECKPOINT_TOPIC",
})  # fmt: skip
"""Names reserved by RocketMQ."""
RESERVED_PROPERTIES = frozenset({
    "TRACE_ON", "MSG_REGION", "KEYS", "TAGS", "WAIT", "DELAY", "RETRY_TOPIC", "REAL_TOPIC", "REAL_QID", "TRAN_MSG",
    "PGROUP", "MIN_OFFSET", "MAX_OFFSET", "BUYER_ID", "ORIGIN_MESSAGE_ID", "TRANSFER_FLAG", "CORRECTION_FLAG",
    "MQ2_FLAG", "RECONSUME_TIME", "UNIQ_KEY", "MAX_RECONSUME_TIMES", "CONSUME_START_TIME", "POP_CK",
    "POP_CK_OFFSET", "1ST_POP_TIME", "TRAN_PREPARED_QUEUE_OFFSET", "DUP_INFO", "EXTEND_UNIQ_INFO", "INSTANCE_ID",
    "CORRELATION_ID", "REPLY_TO_CLIENT", "TTL", "ARRIVE_TIME", "PUSH_REPLY_TIME", "CLUSTER", "MSG_TYPE",
    "INNER_MULTI_QUEUE_OFFSET", "TIMER_DELAY_MS", "TIMER_DELAY_SEC", "TIMER_DELIVER_MS", "TIMER_ENQUEUE_MS",
    "TIMER_DEQUEUE_MS", "TIMER_ROLL_TIMES", "TIMER_OUT_MS", "TIMER_DEL_UNIQKEY", "TIMER_DELAY_LEVEL", "__BORNHOST",
    "BORN_TIMESTAMP", "DLQ_ORIGIN_TOPIC", "DLQ_ORIGIN_MESSAGE_ID", "__CRC32#", "_SYS_MSG_PRIORITY_",
})  # fmt: skip
"""Names of properties reserved by RocketMQ; a user's property with one of them is refused."""
SYSTEM_TOPIC_PREFIX = "rmq_sys_"
SYSTEM_GROUP_PREFIX = "CID_RMQ_SYS_"
LITE_LENGTH_MAX = 64
NAME_CACHE_SIZE = 4_096
"""Maximum of cached valid names."""
_LITE_NAME = re.compile(r"[a-zA-Z0-9_-]+\Z")


def topic_name(topic: Resource) -> str:
    """The name of a topic, which must not be a system topic. Errors: Invalid, GrpcProxyError (ILLEGAL_TOPIC)."""
    return _topic_name(topic.name)


def group_name(group: Resource) -> str:
    """The name of a group, which must not be a system group.

    Errors: Invalid, GrpcProxyError with ILLEGAL_CONSUMER_GROUP.
    """
    return _group_name(group.name)


@lru_cache(maxsize=NAME_CACHE_SIZE)
def _topic_name(name: str) -> str:
    check_topic_name(name)
    if name in SYSTEM_TOPICS or name.startswith(SYSTEM_TOPIC_PREFIX):
        raise GrpcProxyError(Code.ILLEGAL_TOPIC, f"topic {name!r} is a system topic; choose another name")
    return name


@lru_cache(maxsize=NAME_CACHE_SIZE)
def _group_name(name: str) -> str:
    check_consumer_group(name)
    if name.startswith(SYSTEM_GROUP_PREFIX):
        raise GrpcProxyError(Code.ILLEGAL_CONSUMER_GROUP, f"group {name!r} is a system group; choose another name")
    return name


def check_lite_topic(name: str) -> str:
    """Refuse a wrong name of a lite topic; returns the name. Errors: GrpcProxyError with ILLEGAL_LITE_TOPIC."""
    if len(name) > LITE_LENGTH_MAX or not _LITE_NAME.match(name):
        raise GrpcProxyError(
            Code.ILLEGAL_LITE_TOPIC,
            f"{name[:80]!r} cannot be a lite topic; expected 1 to {LITE_LENGTH_MAX} letters, digits, _ and -",
        )
    return name


def stored_topic(parent: str, lite_topic: str) -> str:
    """The name of the topic that stores a lite topic. Errors: GrpcProxyError if both names together are too long."""
    name = f"{LITE_PREFIX}{parent}|{check_lite_topic(lite_topic)}"
    if len(name) > TOPIC_NAME_LENGTH_MAX:
        room = TOPIC_NAME_LENGTH_MAX - len(LITE_PREFIX) - 1 - len(parent)
        raise GrpcProxyError(
            Code.ILLEGAL_LITE_TOPIC,
            f"lite topic {lite_topic!r} has {len(lite_topic)} characters; at most {room} fit below {parent}",
        )
    return name


def check_same_topic(requested: str, handle_topic: str, group: str = "") -> None:
    """Refuse a handle whose topic is not `requested`, its retry topic for `group`, or one of its lite topics.

    An empty `handle_topic`, that of a deleted topic, is accepted. Errors: GrpcProxyError with INVALID_RECEIPT_HANDLE.
    """
    is_same = handle_topic in ("", requested, f"{RETRY_PREFIX}{group}") or parent_of_topic(handle_topic) == requested
    if not is_same:
        message = f"the handle does not belong to topic {requested}; give topic and handle as they were received"
        raise GrpcProxyError(Code.INVALID_RECEIPT_HANDLE, message)


def lite_topic_of(stored: str) -> str:
    """The name of the lite topic that a topic stores; empty if the topic stores no lite topic."""
    return stored.rpartition("|")[2] if stored.startswith(LITE_PREFIX) else ""
