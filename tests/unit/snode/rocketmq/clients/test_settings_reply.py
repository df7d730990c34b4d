"""The settings reply works for every client."""

from apache.rocketmq.v2.definition_pb2 import (
    ClientType,
    FilterExpression,
    Publishing,
    Resource,
    Settings,
    Subscription,
    SubscriptionEntry,
)
from ortoo.common.directory.group import Group
from ortoo.common.groups.retry_policy import RetryPolicy
from ortoo.snode.rocketmq.clients.settings_reply import NODE_JS, make_settings_reply, pop_rules
from ortoo.snode.rocketmq.protocol.messages import to_ms

TOPIC = Resource(resource_namespace="n", name="t")


def test_a_producer_gets_exponential_backoff_and_a_maximal_body() -> None:
    """Without the first the Node.js client dies and Java's never starts; without the second Python's sends nothing."""
    reply = make_settings_reply(
        Settings(client_type=ClientType.PRODUCER, publishing=Publishing(topics=[TOPIC])), "PYTHON", None
    )
    assert reply.backoff_policy.WhichOneof("strategy") == "exponential_backoff"
    assert reply.backoff_policy.max_attempts == 3
    assert reply.publishing.max_body_size == 4 << 20
    assert reply.publishing.validate_message_type
    assert list(reply.publishing.topics) == [TOPIC]
    assert reply.HasField("metric")
    assert not reply.metric.on


def test_a_consumer_gets_its_groups_rules() -> None:
    """Attempts and delays are the group's, batch, polling and order the server's; others are unchanged."""
    entry = SubscriptionEntry(topic=TOPIC, expression=FilterExpression(expression="*"))
    asked = Settings(
        client_type=ClientType.LITE_PUSH_CONSUMER,
        subscription=Subscription(group=Resource(name="g"), subscriptions=[entry]),
    )
    reply = make_settings_reply(asked, "JAVA", Group("g", attempts_max=5))
    assert reply.subscription.fifo
    assert (reply.subscription.lite_subscription_quota, reply.subscription.max_lite_topic_size) == (2000, 64)
    assert reply.subscription.receive_batch_size == 32
    assert (reply.subscription.long_polling_timeout.seconds, reply.subscription.long_polling_timeout.nanos) == (20, 0)
    assert list(reply.subscription.subscriptions) == [entry]
    assert reply.backoff_policy.max_attempts == 5
    delays_ms = [1000 * delay.seconds for delay in reply.backoff_policy.customized_backoff.next]
    assert delays_ms == list(RetryPolicy().delays_ms)


def test_the_node_client_gets_the_one_policy_it_knows() -> None:
    """With a customised list it would retry at once and give up after the first failure in order."""
    asked = Settings(subscription=Subscription(group=Resource(name="g")))
    reply = make_settings_reply(asked, NODE_JS, None)
    assert reply.backoff_policy.WhichOneof("strategy") == "exponential_backoff"
    assert reply.backoff_policy.max_attempts == 16


def test_clients_are_told_the_groups_own_back_off() -> None:
    """Delays and attempts are those of every other client of the group."""

    def told(group: Group | None) -> tuple[tuple[int, ...], int]:
        asked = Settings(subscription=Subscription(group=Resource(name="g")))
        policy = make_settings_reply(asked, "JAVA", group).backoff_policy
        assert pop_rules(group).attempts_max == policy.max_attempts
        return tuple(map(to_ms, policy.customized_backoff.next)), policy.max_attempts

    for one in (None, Group("g")):
        assert told(one) == (RetryPolicy().delays_ms, 16)
    assert told(Group("g", retry=RetryPolicy.read("list:0,5s"), attempts_max=3)) == ((0, 5_000), 3)
    assert told(Group("g", retry=RetryPolicy.read("exponential:100:400")))[0] == (100, 200, 400)
