"""The rings of changes and refused calls: their entries, their omissions and their limits."""

from typing import Any

import pytest

from apache.rocketmq.v2 import definition_pb2, service_pb2
from ortoo.common.process.clock import SystemClock
from ortoo.snode.policy.audit import ENTRIES_MAX, TEXT_LENGTH_MAX, AuditEntry, AuditLog, is_change, latest_of, target_of
from ortoo.snode.policy.principal import PRINCIPAL, Principal
from ortoo.snode.rpc.layers.audit import is_by_operator
from ortoo.v1 import admin_pb2, client_pb2, dead_letter_pb2, namesrv_pb2, producer_pb2, settings_pb2, topic_pb2
from ortoo.v1.enode_deferred_pb2 import VERDICT_SOURCE_CHECK, VERDICT_SOURCE_OPERATOR


@pytest.fixture
def audit() -> AuditLog:
    return AuditLog("snode-0", SystemClock())


def test_refused_calls_of_a_caller_are_one_entry(audit: AuditLog) -> None:
    """The port does not count, and the latest refused caller is first. The last reason is kept."""
    for port, user, error in ((1, "ann", "first"), (2, "bob", "other"), (3, "ann", "last")):
        audit.record_refusal(user, f"10.0.0.1:{port}", "ProducerService/Publish", error)
    ann, bob = audit.latest(refused=True)
    assert (ann.user, ann.peer, ann.count, ann.error, bob.count) == ("ann", "10.0.0.1", 2, "last", 1)
    assert ann.first_at_ms <= ann.at_ms
    assert list(audit.latest(refused=False)) == []


def test_both_rings_are_bounded(audit: AuditLog) -> None:
    """A flood of refused calls leaves the changes alone. Long texts are cut."""
    audit.record_change("ann", "10.0.0.1:1", "AdminService/DeleteTopic", "name=" + "x" * 1000, "")
    for number in range(ENTRIES_MAX + 5):
        audit.record_refusal(f"u{number}", "[::1]:1", "ProducerService/Publish", "e" * 1000)
    refused = list(audit.latest(refused=True))
    assert len(refused) == ENTRIES_MAX
    assert refused[0].user == f"u{ENTRIES_MAX + 4}"
    assert len(refused[0].error) <= TEXT_LENGTH_MAX + 2
    [change] = audit.latest(refused=False)
    assert change.target.startswith("name=x")
    assert len(change.target) <= TEXT_LENGTH_MAX + 2


@pytest.mark.parametrize(
    ("method", "request_", "expected"),
    [
        ("AdminService/DeleteTopic", namesrv_pb2.DeleteTopicRequest(name="t"), True),
        ("AdminService/ListTopics", namesrv_pb2.ListTopicsRequest(), False),
        ("AdminService/Tail", admin_pb2.TailRequest(), False),
        ("AdminService/ResetOffsets", client_pb2.ResetOffsetsRequest(group="g", dry_run=True), False),
        ("SettingsService/UpdateSettings", settings_pb2.UpdateSettingsRequest(role="enode"), True),
        ("SettingsService/UpdateSettings", settings_pb2.UpdateSettingsRequest(local_only=True), True),
        ("SettingsService/ListSettings", settings_pb2.ListSettingsRequest(), False),
        ("DeadLetterService/ReplayDeadLetters", dead_letter_pb2.ReplayDeadLettersRequest(group="g"), True),
        ("DeadLetterService/Peek", None, False),
    ],
)
def test_changes_are_told_from_reads(method: str, request_: Any, expected: bool) -> None:
    """A dry run changes nothing. A call to one snode does, also without a snode that forwards it."""
    assert is_change(method, request_) is expected


@pytest.mark.parametrize("service", ["ProducerService", "MessagingService"])
@pytest.mark.parametrize("name", ["EndTransaction", "RecallMessage"])
def test_verdicts_and_recalls_of_an_admin_are_changes(service: str, name: str) -> None:
    """Those of producers are not, which would displace the changes of operators."""
    assert is_change(f"{service}/{name}", None, by_operator=True)
    assert not is_change(f"{service}/{name}", None)
    assert not is_change(f"{service}/Publish", None, by_operator=True)


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        (producer_pb2.EndTransactionRequest(source=VERDICT_SOURCE_OPERATOR), True),
        (producer_pb2.EndTransactionRequest(source=VERDICT_SOURCE_CHECK), False),
        (producer_pb2.RecallMessageRequest(recall_handle="h"), False),
        (service_pb2.EndTransactionRequest(source=definition_pb2.SOURCE_SERVER_CHECK), False),
        (None, False),
    ],
)
def test_operators_are_known_by_their_verdict_or_as_admins(request_: Any, expected: bool) -> None:
    """Without access control no caller is an admin. `ortoo tx` names the source of its verdicts."""
    assert is_by_operator(request_) is expected
    for principal, is_admin in ((Principal("ann"), True), (Principal("shop", is_unrestricted=False), False)):
        token = PRINCIPAL.set(principal)
        assert is_by_operator(request_) is (is_admin or expected)
        PRINCIPAL.reset(token)


def test_every_method_of_the_admin_service_is_a_read_or_a_change() -> None:
    """A new method whose name begins like a read must be one. These begin so."""
    reads = {one.name for one in admin_pb2.DESCRIPTOR.services_by_name["AdminService"].methods}
    reads = {name for name in reads if not is_change(f"AdminService/{name}", None)}
    assert all(name.startswith(("Describe", "Find", "List", "Tail")) for name in reads)
    assert {"ListTopics", "DescribeGroup", "Tail", "FindMessages"} <= reads


def test_the_target_has_names_and_no_secret() -> None:
    """Names at the first level, and those of a group or a user within the request."""
    user = namesrv_pb2.User(access_key="ann")
    assert target_of(namesrv_pb2.PutUserRequest(user=user, secret_key="s3cret")) == "user.access_key=ann"
    group = topic_pb2.Group(name="g")
    assert target_of(namesrv_pb2.PutGroupRequest(group=group)) == "group.name=g"
    assert target_of(client_pb2.ResetOffsetsRequest(group="g", topic="t", offset=3)) == "group=g topic=t"
    resource = definition_pb2.Resource(name="t")
    assert target_of(service_pb2.EndTransactionRequest(topic=resource, transaction_id="x")) == (
        "transaction_id=x topic.name=t"
    )
    assert target_of(None) == ""


def test_entries_of_several_snodes_are_merged() -> None:
    """The latest ones of all snodes, at most as many as wanted."""

    def entry(snode: str, at_ms: int) -> AuditEntry:
        return AuditEntry(at_ms, snode, "", "", "", "", "", 1, at_ms)

    merged = latest_of([[entry("a", 9), entry("a", 3)], [], [entry("b", 8), entry("b", 1)]], 3)
    assert [(one.snode, one.at_ms) for one in merged] == [("a", 9), ("b", 8), ("a", 3)]
