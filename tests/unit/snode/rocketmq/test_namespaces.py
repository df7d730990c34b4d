"""Names with a namespace, in requests and answers."""

from apache.rocketmq.v2 import definition_pb2 as d
from apache.rocketmq.v2 import service_pb2 as s
from apache.rocketmq.v2.definition_pb2 import Resource
from ortoo.snode.rocketmq.protocol.namespaces import add_namespace, remove_namespace


def test_every_name_of_a_request_is_made_whole_and_bare_again() -> None:
    """Topics and groups at any depth, in topics of groups behind their prefix; a second time changes nothing."""
    entry = d.SubscriptionEntry(topic=Resource(name="t", resource_namespace="ns"))
    wish = d.Subscription(group=Resource(name="g"), subscriptions=[entry])
    command = s.TelemetryCommand(settings=d.Settings(subscription=wish))
    before = s.TelemetryCommand.FromString(command.SerializeToString())
    assert add_namespace(command, "ns") == add_namespace(command, "ns") == "ns"
    part = command.settings.subscription
    assert (part.group.name, part.subscriptions[0].topic.name) == ("ns%g", "ns%t")
    remove_namespace(command, "ns")
    assert command == before
    retries = s.QueryRouteRequest(topic=Resource(name="%RETRY%g", resource_namespace="ns"))
    add_namespace(retries, "")
    assert retries.topic.name == "%RETRY%ns%g"


def test_without_a_namespace_nothing_changes() -> None:
    """Not even of a name that looks like one."""
    request = s.QueryRouteRequest(topic=Resource(name="a%b"))
    assert add_namespace(request, "") == ""
    assert request.topic.name == "a%b"
