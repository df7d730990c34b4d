"""Routes have every queue with its permission, at the address by which the client came."""

import pytest

from apache.rocketmq.v2.definition_pb2 import Address, AddressScheme, Endpoints, MessageType, Permission, Resource
from ortoo.common.directory import topic as stored
from ortoo.snode.cluster.routes import Topic
from ortoo.snode.rocketmq.clients.routes import (
    ACCEPTED_TYPES,
    ANY_QUEUE,
    MIXED_TYPES,
    accepted_types,
    assignments,
    choose_endpoints,
    endpoints_of,
    route_queues,
)
from ortoo.snode.rocketmq.protocol.caller import Caller
from ortoo.snode.rocketmq.protocol.codes import GrpcProxyError

OWN = endpoints_of("10.0.0.1:8081")


def topic(read: int, write: int, permission: stored.Permission = stored.Permission.READ_WRITE) -> Topic:
    """A topic on two enodes, of which only the second has the counts given."""
    places = (stored.Placement("b", read, write), stored.Placement("a", 1, 1))
    return Topic("t", 1, 1, permission, places)


@pytest.mark.parametrize(
    ("address", "scheme", "host"),
    [
        ("127.0.0.1:8081", AddressScheme.IPv4, "127.0.0.1"),
        ("[::1]:8081", AddressScheme.IPv6, "::1"),
        ("mq.example.org:8081", AddressScheme.DOMAIN_NAME, "mq.example.org"),
        ("localhost:8081", AddressScheme.DOMAIN_NAME, "localhost"),
    ],
)
def test_an_address_says_what_kind_it_is(address: str, scheme: int, host: str) -> None:
    """Without a scheme the Python client builds an empty target."""
    endpoints = endpoints_of(address)
    assert endpoints.scheme == scheme
    assert endpoints.addresses == [Address(host=host, port=8081)]


def test_a_client_is_told_the_way_it_came() -> None:
    """The address by which the client came works behind any address translation."""
    asked = endpoints_of("mq.example.org:30081")
    assert choose_endpoints(asked, None, OWN) == asked


def test_what_is_advertised_counts_most() -> None:
    """An operator's address for clients comes first."""
    advertised = endpoints_of("public:1")
    assert choose_endpoints(endpoints_of("mq.example.org:30081"), advertised, OWN) == advertised


@pytest.mark.parametrize(
    "asked",
    [
        Endpoints(),
        Endpoints(addresses=[Address(host="h", port=1)]),
        Endpoints(scheme=AddressScheme.IPv4),
        Endpoints(scheme=AddressScheme.DOMAIN_NAME, addresses=[Address(host="h", port=1), Address(host="i", port=1)]),
    ],
)
def test_endpoints_that_no_client_could_use_are_not_given_back(asked: Endpoints) -> None:
    """No scheme, no address, or two names: the answer has the snode's own address."""
    assert choose_endpoints(asked, None, OWN) == OWN


@pytest.mark.parametrize(
    ("read", "write", "expected"),
    [
        (2, 2, [(0, Permission.READ_WRITE), (1, Permission.READ_WRITE)]),
        (3, 1, [(0, Permission.READ_WRITE), (1, Permission.READ), (2, Permission.READ)]),
        (1, 2, [(0, Permission.READ_WRITE), (1, Permission.WRITE)]),
    ],
)
def test_each_queue_says_what_may_be_done_with_it(read: int, write: int, expected: list[tuple[int, int]]) -> None:
    """Queue 0 can be read and written wherever both are allowed, because one client insists on it."""
    queues = route_queues(topic(read, write), Resource(name="t"), OWN)
    assert [(q.id, q.permission) for q in queues if q.broker.name == "b"] == expected
    assert [q.broker.name for q in queues] == sorted(q.broker.name for q in queues)
    assert all(q.broker.id == 0 and q.broker.endpoints == OWN for q in queues)
    assert all(MessageType.MESSAGE_TYPE_UNSPECIFIED not in q.accept_message_types for q in queues)


def test_a_topic_that_allows_nothing_is_forbidden() -> None:
    """A route without queues would look like a topic that does not exist."""
    with pytest.raises(GrpcProxyError, match="NONE"):
        route_queues(topic(1, 1, stored.Permission.NONE), Resource(name="t"), OWN)


def test_every_member_is_assigned_all_queues_of_each_broker() -> None:
    """Popping needs no owner; the answer is the same for all and always in the same order."""
    found = assignments(topic(4, 4), Resource(resource_namespace="n", name="t"), OWN)
    assert [(a.message_queue.broker.name, a.message_queue.id) for a in found] == [("a", ANY_QUEUE), ("b", ANY_QUEUE)]
    assert {a.message_queue.topic.resource_namespace for a in found} == {"n"}
    with pytest.raises(GrpcProxyError, match="WRITE_ONLY"):
        assignments(topic(4, 4, stored.Permission.WRITE_ONLY), Resource(name="t"), OWN)


def test_what_a_topic_accepts_is_told_for_every_kind() -> None:
    """Clients compare a message's type with the list before they send; an empty one would refuse everything."""
    assert set(ACCEPTED_TYPES) == set(stored.MessageType)
    assert all(
        accepted and MessageType.MESSAGE_TYPE_UNSPECIFIED not in accepted for accepted in ACCEPTED_TYPES.values()
    )


@pytest.mark.parametrize(
    ("language", "version", "knows"),
    [
        ("JAVA", "5.0.7", False),
        ("JAVA", "5.1.0", False),
        ("JAVA", "", False),
        ("JAVA", "5.2.0-SNAPSHOT", True),
        ("JAVA", "5.10.1", True),
        ("PYTHON", "5.1.2", True),
        ("", "", True),
    ],
)
def test_java_clients_are_told_of_kinds_that_they_know(language: str, version: str, knows: bool) -> None:
    """Clients before 5.2.0 do not start if a topic without a type accepts priorities."""
    accepted = accepted_types(topic(1, 1), Caller("c", language, version))
    assert list(accepted) == [kind for kind in MIXED_TYPES if knows or kind != MessageType.PRIORITY]
