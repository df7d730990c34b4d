"""The settings that the server returns to a client: the client's own settings, completed by the server.

The Node.js client supports only exponential back-off. The Python client supports only the customised list, in whole
seconds. A producer that receives no maximum body size sends nothing.
"""

from apache.rocketmq.v2 import definition_pb2 as pb
from ortoo.common.directory.group import Group
from ortoo.common.groups.pop import PopRules
from ortoo.common.records.message import BODY_BYTES_MAX
from ortoo.snode.rocketmq.protocol.caller import WAIT_MS_MAX
from ortoo.snode.rocketmq.protocol.messages import duration
from ortoo.snode.rocketmq.protocol.names import LITE_LENGTH_MAX

NODE_JS = "HTTP"
"""The language that the Node.js client sends."""
RECEIVE_BATCH_MAX = 32
"""Maximum of messages in one answer."""
LITE_TOPICS_MAX = 2_000
"""Maximum of lite topics of one client."""
CONSUMER_TYPES = frozenset(
    {
        pb.ClientType.PUSH_CONSUMER,
        pb.ClientType.SIMPLE_CONSUMER,
        pb.ClientType.PULL_CONSUMER,
        pb.ClientType.LITE_PUSH_CONSUMER,
        pb.ClientType.LITE_SIMPLE_CONSUMER,
    }
)

PLAIN_TYPES = frozenset({pb.ClientType.PUSH_CONSUMER, pb.ClientType.SIMPLE_CONSUMER})
"""The types of clients that receive messages of topics, and do not subscribe to lite topics."""
LITE_TYPES = frozenset({pb.ClientType.LITE_PUSH_CONSUMER, pb.ClientType.LITE_SIMPLE_CONSUMER})
"""The types of clients that receive the messages of each lite topic one after another."""
UNKNOWN = Group("")
"""The settings of a group that does not exist yet: the defaults."""


def pop_rules(group: Group | None, *, from_last: bool = False, order_batched: bool = False) -> PopRules:
    """The rules for pops of a group. With `from_last`, it begins at the end of queues in which it has no offset.

    Messages of one message group always come in order, because the protocol has no option for the order. With
    `order_batched`, an answer may contain several messages of a message group; it is only for simple consumers, because
    listeners of push consumers run concurrently.
    """
    attempts_max = (group or UNKNOWN).attempts_max
    return PopRules(attempts_max, in_order=True, from_last=from_last, order_batched=order_batched)


def make_settings_reply(client_settings: pb.Settings, language: str, group: Group | None) -> pb.Settings:
    """The settings to send to a client; those that the server does not decide are returned unchanged."""
    reply = pb.Settings()
    reply.CopyFrom(client_settings)
    reply.metric.CopyFrom(pb.Metric(on=False))
    if client_settings.HasField("subscription"):
        part = reply.subscription
        part.fifo = client_settings.client_type in LITE_TYPES
        part.receive_batch_size = RECEIVE_BATCH_MAX
        part.long_polling_timeout.CopyFrom(duration(WAIT_MS_MAX))
        part.lite_subscription_quota = LITE_TOPICS_MAX
        part.max_lite_topic_size = LITE_LENGTH_MAX
        reply.backoff_policy.CopyFrom(_consumer_backoff(language, group or UNKNOWN))
    else:
        reply.publishing.max_body_size = BODY_BYTES_MAX
        reply.publishing.validate_message_type = True
        reply.backoff_policy.CopyFrom(pb.RetryPolicy(max_attempts=3, exponential_backoff=_exponential(10, 1000)))
    return reply


def _consumer_backoff(language: str, group: Group) -> pb.RetryPolicy:
    """The back-off for a consumer. `max_attempts` counts all attempts, as the group's `attempts_max` does."""
    delays_ms = group.retry.delays_ms
    if language == NODE_JS:
        exponential = _exponential(delays_ms[0], delays_ms[-1])
        return pb.RetryPolicy(max_attempts=group.attempts_max, exponential_backoff=exponential)
    listed = pb.CustomizedBackoff(next=map(duration, delays_ms))
    return pb.RetryPolicy(max_attempts=group.attempts_max, customized_backoff=listed)


def _exponential(first_ms: int, last_ms: int) -> pb.ExponentialBackoff:
    return pb.ExponentialBackoff(initial=duration(first_ms), max=duration(last_ms), multiplier=2.0)
