"""All work of an operator can be done with grpcurl alone: every method of AdminService, used once."""

from pathlib import Path
from typing import Any

from ortoo.client import ConsumerSettings, connect
from ortoo.v1 import admin_pb2
from ortoo.verification.servers import grpcurl
from ortoo.verification.servers.cluster import open_cluster

SERVICE = admin_pb2.DESCRIPTOR.services_by_name["AdminService"]
TOPIC, GROUP, CLIENT, PULLER = "orders", "stable", "test-client", "test-puller"
FLOW_RULE = {"unit": "FLOW_UNIT_REQUESTS", "method": "ortoo.v1.ProducerService/Publish", "per_second": 1000}
QUEUE = {"topic": TOPIC, "enode": "enode-0", "queue_id": 0}

# Method to (request, text in the answer), in a working order.
CALLS: dict[str, tuple[dict[str, Any], str]] = {
    "ListTopics": ({}, TOPIC),
    "DescribeTopic": ({"name": TOPIC}, "end_offset"),
    "DescribeTopics": ({"names": [TOPIC]}, "end_offset"),
    "UpdateTopic": ({"name": TOPIC, "read_queue_count": 5}, "read_queue_count"),
    "PutGroup": ({"group": {"name": "another", "consume_enabled": True}}, "another"),
    "UpdateGroup": ({"name": "another", "slow_consumer_threshold_messages": 7}, "7"),
    "DescribeGroup": ({"name": "another"}, "another"),
    "ListGroups": ({}, GROUP),
    "Tail": ({"topic": TOPIC, "from_beginning": True, "messages_max": 1}, "two fresh horses"),
    "FindMessages": ({"topic": TOPIC, "key": "order-1"}, "two fresh horses"),
    "ListSinks": ({"topic": TOPIC}, "{"),
    "TrimTopic": ({"topic": TOPIC, "time_ms": "-1", "dry_run": True}, "begin_offset"),
    "DescribeLag": ({"group": GROUP, "topic": TOPIC}, "committed_offset"),
    "ListLagHistory": ({"group": GROUP, "topic": TOPIC}, "interval_ms"),
    "ListDelayedMessages": ({"topic": TOPIC}, "{"),
    "CreateSchedule": (
        {
            "topic": TOPIC,
            "name": "reports",
            "cron": "0 6 * * 1-5",
            "timezone": "Europe/Berlin",
            "message": {"body": "cnVu"},
        },
        "next_ms",
    ),
    "ListSchedules": ({"topic": TOPIC}, "reports"),
    "DescribeSchedule": ({"topic": TOPIC, "name": "reports"}, "cnVu"),
    "SuspendSchedule": ({"topic": TOPIC, "name": "reports"}, "{"),
    "ResumeSchedule": ({"topic": TOPIC, "name": "reports"}, "{"),
    "DeleteSchedule": ({"topic": TOPIC, "name": "reports"}, "{"),
    "ListTransactions": ({"topic": TOPIC}, "{"),
    "DescribeCluster": ({}, "enode-0"),
    "ListClients": ({}, CLIENT),
    "DescribeClient": ({"client_id": CLIENT}, CLIENT),
    "CallClient": ({"client_id": PULLER, "command": {"describe_running": {}}}, "{"),
    "ListConsumers": ({"group": GROUP}, CLIENT),
    "ListTopicGroups": ({"topic": TOPIC}, GROUP),
    "ResetOffsets": ({"group": GROUP, "topic": TOPIC, "offset": "0", "force": True}, "{"),
    "ParkMessages": ({"group": GROUP, "queue": QUEUE, "offsets": ["0"], "dry_run": True}, "OUTSTANDING"),
    "CloneOffsets": ({"from_group": GROUP, "to_group": "another", "topic": TOPIC}, "{"),
    "ListDeliveryModes": ({"group": GROUP}, "DELIVERY_MODE_OFFSETS"),
    "SetDeliveryMode": ({"group": "another", "topic": TOPIC, "mode": "DELIVERY_MODE_POP"}, "{"),
    "UpdateFlowControl": (
        {"rules": [FLOW_RULE]},
        "1000",
    ),
    "PutUser": ({"user": {"access_key": "operator", "enabled": True}, "secret_key": "0123456789abcdef"}, "operator"),
    "ListUsers": ({}, "operator"),
    "DeleteUser": ({"access_key": "operator"}, "{"),
    "DeleteGroup": ({"name": "another"}, "due_at_ms"),
    "ListDeletedGroups": ({}, "another"),
    "UndeleteGroup": ({"name": "another"}, "another"),
    "CreateTopic": ({"name": "new"}, "topic_id"),
    "DeleteTopic": ({"name": "new"}, "due_at_ms"),
    "ListDeletedTopics": ({}, "new"),
    "UndeleteTopic": ({"name": "new"}, "topic_id"),
    "AdoptTopics": ({"all": True}, "{"),
    "ListDisks": ({}, "free_bytes"),
    "ListAuditEntries": ({}, "AdminService/DeleteTopic"),
}
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "ResumeTransaction": ({"transaction_id": "no-such-transaction"}, "transaction"),
    "ResetSink": ({"topic": TOPIC, "sink_id": "no-such-sink"}, "no exactly-once sink"),
    "HandOver": ({"enode": "enode-0"}, "enode"),
    "ElectReplica": ({"enode": "enode-0", "replica": {"number": 1, "disk": "disk"}}, "enode"),
    "AcceptStore": ({"enode": "no-such-enode", "store_id": "s"}, "enode"),
    "ForgetEnode": ({"enode": "no-such-enode"}, "enode"),
    "AddReplica": ({"enode": "enode-0", "replica": {"number": 2, "disk": "disk"}}, "enode"),
    "DescribeRole": ({"name": "no-such-role"}, "role"),
    "RemoveReplica": ({"enode": "enode-0", "replica": {"number": 2, "disk": "disk"}}, "enode"),
}
"""Methods that need the result of a fault: they answer with a reason."""
WITHOUT_ARGUMENTS: dict[str, tuple[dict[str, Any], str]] = {
    method.name: ({}, "{") for method in SERVICE.methods if method.name not in CALLS | REFUSED
}
"""All others. A new method that needs arguments fails here, until it has a row above."""


async def test_every_admin_method_works_by_grpcurl(tmp_path: Path) -> None:
    """Each answers with readable JSON; no method needs a client library."""
    async with open_cluster(tmp_path) as cluster:

        async def call(method: str, request: dict[str, Any]) -> grpcurl.GrpcurlResult:
            return await grpcurl.call(cluster.address, f"{SERVICE.full_name}/{method}", request)

        created = await call("CreateTopic", {"name": TOPIC, "read_queue_count": 4})
        assert created.exit_code == 0, created.stderr
        message = {"body": "dHdvIGZyZXNoIGhvcnNlcw==", "keys": ["order-1"]}
        sent = await grpcurl.call(
            cluster.address,
            "ortoo.v1.ProducerService/Publish",
            {"topic": TOPIC, "messages": [message], "queue": QUEUE},
        )
        assert sent.exit_code == 0, sent.stderr
        settings = ConsumerSettings(from_beginning=True, client_id=CLIENT)
        async with (
            connect(cluster.address, client_id=PULLER) as mq,
            mq.consumer(GROUP, TOPIC, settings) as consumer,
            mq.pull_consumer("pullers", TOPIC),
        ):
            async for received in consumer:
                received.ack()
                break
            wrong = []
            for method, (request, wanted) in (CALLS | WITHOUT_ARGUMENTS).items():
                answer = await call(method, request)
                if answer.exit_code or wanted not in answer.stdout:
                    wrong.append((method, answer.stderr or answer.stdout))
            for method, (request, reason) in REFUSED.items():
                answer = await call(method, request)
                if not answer.exit_code or reason not in answer.stderr:
                    wrong.append((method, answer.stderr or answer.stdout))
        assert wrong == []
