"""The permissions of users, and that every method needs some."""

from typing import Any

import pytest

from ortoo.common.errors import Forbidden, Invalid
from ortoo.snode.policy.access_rules import ADMIN, Grant, RequiredPermission, Resource, parse_access_rules
from ortoo.snode.policy.required_permissions import required_permissions
from ortoo.v1 import consumer_pb2, pull_pb2, topic_pb2

RULES = """
trusted_addresses = ["10.1.0.0/16", "::1"]
[[user]]
access_key = "ann"
admin = true
[[user]]
access_key = "shop"
topics = { orders = "PUB", "stock-*" = "PUB|SUB", "stock-secret-*" = "DENY" }
groups = { "shop-*" = "SUB", "shop-old" = "DENY" }
"""


def topic(name: str, grant: Grant) -> RequiredPermission:
    """A permission on a topic."""
    return RequiredPermission(Resource.TOPIC, name, grant)


@pytest.mark.parametrize(
    ("need", "allowed"),
    [
        (topic("orders", Grant.PUB), True),
        (topic("orders", Grant.SUB), False),
        (topic("orders", Grant.PUB | Grant.SUB), True),
        (topic("stock-1", Grant.SUB), True),
        (topic("stock-secret-1", Grant.SUB), False),
        (topic("other", Grant.PUB), False),
        (topic("%RETRY%shop-1", Grant.SUB), True),
        (topic("%DLQ%shop-old", Grant.SUB), False),
        (topic("%LMQ%|orders|x", Grant.PUB), True),
        (RequiredPermission(Resource.GROUP, "shop-1", Grant.SUB), True),
        (RequiredPermission(Resource.GROUP, "shop-old", Grant.SUB), False),
        (RequiredPermission(Resource.GROUP, "other", Grant.SUB), False),
        (ADMIN, False),
    ],
)
def test_the_exact_name_counts_then_the_longest_beginning(need: RequiredPermission, *, allowed: bool) -> None:
    """E-247: names without a rule are denied, an admin has all permissions, an unknown user none."""
    rules = parse_access_rules(RULES)
    rules.check("ann", [need])
    with pytest.raises(Forbidden):
        rules.check("nobody", [need])
    if allowed:
        rules.check("shop", [need])
    else:
        with pytest.raises(Forbidden, match="shop"):
            rules.check("shop", [need])


def test_some_addresses_need_not_sign() -> None:
    """Networks of both kinds are trusted, a malformed address is not (E-247)."""
    rules = parse_access_rules(RULES)
    assert [rules.is_trusted(peer) for peer in ("10.1.2.3:80", "[::1]:80", "10.2.0.1:80", "unix:", "")] == [
        True, True, False, False, False,
    ]  # fmt: skip


@pytest.mark.parametrize(
    "text",
    [
        "", "user = 1", "user = ['a']", "[[user]]", "[[user]]\naccess_key = 'a'\nx = 1", "y = 1", "[[user",
        "[[user]]\naccess_key = 'a'\n[[user]]\naccess_key = 'a'", "[[user]]\naccess_key = 'a'\nadmin = 1",
        "[[user]]\naccess_key = 'a'\ntopics = { t = 'READ' }", "[[user]]\naccess_key = 'a'\ntopics = 'PUB'",
        "trusted_addresses = ['ten']\n[[user]]\naccess_key = 'a'",
    ],
)  # fmt: skip
def test_wrong_files_are_refused(text: str) -> None:
    """No permission is guessed, and an empty file is wrong."""
    with pytest.raises(Invalid):
        parse_access_rules(text)


QUEUE = topic_pb2.Queue(topic="t", enode="e", queue_id=0)


@pytest.mark.parametrize(
    ("method", "request_"),
    [
        ("Pull", pull_pb2.PullRequest(group="g", queue=QUEUE)),
        ("Push", consumer_pb2.PushRequest(open=consumer_pb2.OpenSession(
            group="g", subscriptions=[consumer_pb2.Subscription(topic="t")]))),
        ("LockQueues", pull_pb2.LockQueuesRequest(group="g", queues=[QUEUE])),
        ("CommitOffsets", pull_pb2.CommitConsumerOffsetsRequest(
            group="g", offsets=[pull_pb2.ConsumerOffset(queue=QUEUE)])),
        ("NackMessages", pull_pb2.NackMessagesRequest(group="g", queue=QUEUE)),
    ],
)  # fmt: skip
def test_consuming_asks_for_group_and_topic(method: str, request_: Any) -> None:
    """E-247: by each of the methods."""
    asked = set(required_permissions(f"ConsumerService/{method}", request_, str))
    assert asked == {RequiredPermission(Resource.GROUP, "g", Grant.SUB), topic("t", Grant.SUB)}
