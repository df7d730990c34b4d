"""Which topics and groups the protocol lets clients name."""

from apache.rocketmq.v2.definition_pb2 import Code, Resource
from ortoo.common.cluster.names import check_group_name, check_topic_name
from ortoo.common.errors import Invalid
from ortoo.snode.rocketmq.protocol.codes import Refused

SYSTEM_TOPICS = frozenset(
    {
        "TBW102",
        "SCHEDULE_TOPIC_XXXX",
        "BenchmarkTest",
        "RMQ_SYS_TRANS_HALF_TOPIC",
        "RMQ_SYS_TRACE_TOPIC",
        "RMQ_SYS_TRANS_OP_HALF_TOPIC",
        "TRANS_CHECK_MAX_TIME_TOPIC",
        "SELF_TEST_TOPIC",
        "OFFSET_MOVED_EVENT",
        "CHECKPOINT_TOPIC",
    }
)
"""Names that RocketMQ keeps for itself."""
SYSTEM_TOPIC_PREFIX = "rmq_sys_"
SYSTEM_GROUP_PREFIX = "CID_RMQ_SYS_"


def topic_name(topic: Resource) -> str:
    """The name of a topic that a client may use. Errors: Refused with ILLEGAL_TOPIC."""
    name = topic.name
    try:
        check_topic_name(name)
    except Invalid as error:
        raise Refused(Code.ILLEGAL_TOPIC, str(error)) from None
    if name in SYSTEM_TOPICS or name.startswith(SYSTEM_TOPIC_PREFIX):
        raise Refused(Code.ILLEGAL_TOPIC, f"topic {name!r} is a system topic; choose another name")
    return name


def group_name(group: Resource) -> str:
    """The name of a group that a client may use. Errors: Refused with ILLEGAL_CONSUMER_GROUP."""
    name = group.name
    try:
        check_group_name(name)
    except Invalid as error:
        raise Refused(Code.ILLEGAL_CONSUMER_GROUP, str(error)) from None
    if name.startswith(SYSTEM_GROUP_PREFIX):
        raise Refused(Code.ILLEGAL_CONSUMER_GROUP, f"group {name!r} is a system group; choose another name")
    return name
