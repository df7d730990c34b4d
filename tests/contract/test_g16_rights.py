"""G16: permissions are checked for all objects of a request. Each snode method is called by each kind of user."""

import asyncio
import tomllib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
from google.protobuf.descriptor import FieldDescriptor, MethodDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from apache.rocketmq.v2 import admin_pb2 as rocketmq_admin
from apache.rocketmq.v2 import definition_pb2 as d
from apache.rocketmq.v2 import service_pb2 as s
from ortoo.common.groups.handle import Handle, HandleKind
from ortoo.common.groups.handle_seal import HandleSeals
from ortoo.keda import externalscaler_pb2
from ortoo.snode.policy.required_permissions import OBSERVATIONS, REQUIRED_PERMISSIONS
from ortoo.snode.pop.receipt_handle import ReceiptHandle
from ortoo.v1 import (
    admin_pb2,
    consumer_pb2,
    dead_letter_pb2,
    delivery_pb2,
    findings_pb2,
    namesrv_pb2,
    producer_pb2,
    reply_pb2,
    session_pb2,
    settings_pb2,
    topic_pb2,
)
from ortoo.verification.servers.cluster import InProcessCluster, open_cluster
from tests.contract.rights_page import read_observations, read_page
from tests.integration.guarded_cluster import SECRET, signed

RULES = """
[[user]]
access_key = "powerless"
[[user]]
access_key = "elsewhere"
topics = { u = "PUB|SUB" }
groups = { h = "PUB|SUB" }
[[user]]
access_key = "disabled"
admin = true
[[user]]
access_key = "sender"
topics = { t = "PUB" }
groups = { g = "PUB" }
[[user]]
access_key = "receiver"
topics = { t = "SUB" }
groups = { g = "SUB" }
[[user]]
access_key = "looker"
topics = { t = "BROWSE" }
groups = { g = "BROWSE" }
[[user]]
access_key = "topical"
topics = { t = "PUB|SUB" }
[[user]]
access_key = "watch"
observer = true
[[user]]
access_key = "ann"
admin = true
"""
USERS = ("powerless", "elsewhere", "disabled", "sender", "receiver", "looker", "topical", "watch", "ann")
FILES = (
    producer_pb2, consumer_pb2, session_pb2, reply_pb2, dead_letter_pb2, admin_pb2, delivery_pb2, findings_pb2,
    settings_pb2, s, rocketmq_admin, externalscaler_pb2,
)  # fmt: skip
METHODS = {
    f"{service.name}/{method.name}": method
    for file in FILES
    for service in file.DESCRIPTOR.services_by_name.values()
    for method in service.methods
}
LISTS = ("queues", "offsets", "receipts", "messages", "entries")
LET_THROUGH_S = 4.0
"""A call that should be let through and still runs after this time was let through."""
PATIENCE_S = 120.0
"""Timeout of a call that should be refused; long, so that a slow machine does not fail the test."""
CLIENTS_OWN = "Internal error from Core"
"""The error of grpc.aio's client for a write after the server ended the call; the server's status was not read."""
REFUSED = (d.UNAUTHORIZED, d.FORBIDDEN)


RIGHTS = read_page(METHODS)
OBSERVED = read_observations()
"""The oracle: the documented tables."""
NAMES = {"topic": "t", "group": "g"}
"""The topic and the group of each request."""


def request_of(name: str, variant: str, topic_id: int) -> list[Message]:
    """Requests that name topic `t` and group `g` wherever they can; those of an admin are empty, and do nothing."""
    method, is_producer = METHODS[name], variant == "producer"
    made = GetMessageClass(method.input_type)
    if name == "SessionService/Connect":
        hello = session_pb2.ConnectRequest(hello=session_pb2.Hello(client_id="c"))
        if is_producer:
            return [hello, session_pb2.ConnectRequest(register_producer=session_pb2.RegisterProducer(group="g"))]
        register = session_pb2.RegisterConsumer(group="g", subscriptions=[consumer_pb2.Subscription(topic="t")])
        return [hello, session_pb2.ConnectRequest(register_consumer=register)]
    if name == "ConsumerService/Push":
        wanted = consumer_pb2.OpenSession(group="g", subscriptions=[consumer_pb2.Subscription(topic="t")])
        return [consumer_pb2.PushRequest(open=wanted)]
    if name == "MessagingService/Telemetry":
        if is_producer:
            publishing = d.Publishing(topics=[d.Resource(name="t")])
            return [s.TelemetryCommand(settings=d.Settings(client_type=d.PRODUCER, publishing=publishing))]
        part = d.Subscription(group=d.Resource(name="g"))
        part.subscriptions.add(topic=d.Resource(name="t"))
        return [s.TelemetryCommand(settings=d.Settings(client_type=d.SIMPLE_CONSUMER, subscription=part))]
    if name == "Admin/ChangeLogLevel":
        return [rocketmq_admin.ChangeLogLevelRequest(level=99)]  # type: ignore[arg-type]  # an invalid level
    request: Any = made() if RIGHTS[name, variant].rights is None else filled(made(), topic_id)
    if variant == "for_write":
        request.for_write = True
    elif variant == "to_topic":
        request.to_topic = "t"
    return [request]


def filled(message: Any, topic_id: int) -> Any:
    """A message whose fields of known names contain topic `t`, group `g`, and their objects."""
    handle = Handle(HandleKind.DELAYED, "enode-0", topic_id, 0, 1, 1).encoded(HandleSeals())
    texts = {
        "topic": "t", "group": "g", "name": "g" if "Group" in message.DESCRIPTOR.name else "t", "producer_group": "g",
        "client_id": "c",
        "recall_handle": f"{handle}.bQ==" if message.DESCRIPTOR.file.package.startswith("apache") else handle,
        "transaction_id": Handle(HandleKind.TRANSACTION, "enode-0", topic_id, 0, 1, 0).encoded(HandleSeals()),
        "receipt_handle": ReceiptHandle("enode-0", "g", topic_id, 0, 1, 0, 1).encoded(HandleSeals()),
    }  # fmt: skip
    if isinstance(message, topic_pb2.Queue):
        message.CopyFrom(topic_pb2.Queue(topic="t", enode="enode-0", queue_id=0))
        return message
    for field in message.DESCRIPTOR.fields:
        value = getattr(message, field.name)
        if field.name == "scalerMetadata":
            value.update({"group": "g", "topic": "t"})
        elif field.type == FieldDescriptor.TYPE_STRING and field.name in texts and not field.is_repeated:
            setattr(message, field.name, texts[field.name])
        elif field.type == FieldDescriptor.TYPE_STRING and field.name == "names":
            value.append(texts["name"])
        elif field.type == FieldDescriptor.TYPE_MESSAGE and field.name in ("topic", "group"):
            value.name = texts[field.name]
        elif field.name in ("queue", "message_queue", "scaledObjectRef"):
            filled(value, topic_id)
            value.SetInParent()
        elif field.name in LISTS and field.is_repeated and field.message_type is not None:
            filled(value.add(), topic_id)
    return message


async def call(
    cluster: InProcessCluster,
    method: MethodDescriptor,
    requests: list[Message],
    headers: Any,
    timeout_s: float,
    said: list[Any],
) -> None:
    """Call a method; `said` gets each answer as it arrives. Errors: AioRpcError."""
    ended = asyncio.Event()

    async def given() -> AsyncIterator[Message]:
        for request in requests:
            yield request
        if len(requests) > 1 or method.name in ("Push", "Telemetry"):
            await ended.wait()

    streams = ("stream" if method.client_streaming else "unary", "stream" if method.server_streaming else "unary")
    kind = "_".join(streams)
    path = f"/{method.containing_service.full_name}/{method.name}"
    make = getattr(cluster.channels.channel_to(cluster.address), kind)
    answer = GetMessageClass(method.output_type)
    called = make(path, request_serializer=type(requests[0]).SerializeToString, response_deserializer=answer.FromString)
    sent = given() if method.client_streaming else requests[0]
    try:
        started = called(sent, metadata=(("x-mq-client-id", headers[0]), *headers[1]), timeout=timeout_s)
        if not method.server_streaming:
            said.append(await started)
            return
        keep = said.append  # at once, because the call may end with an error
        async for one in started:
            keep(one)
    except grpc.aio.AioRpcError as error:
        if error.details() != CLIENTS_OWN:
            raise
        said.clear()
        await call(cluster, method, requests, headers, timeout_s, said)
    finally:
        ended.set()


async def is_refused(
    cluster: InProcessCluster, method: MethodDescriptor, requests: list[Message], headers: Any, timeout_s: float
) -> bool:
    """Call a method; whether access control refuses it."""
    said: list[Any] = []
    try:
        await call(cluster, method, requests, headers, timeout_s, said)
    except grpc.aio.AioRpcError as error:
        if method.name == "Telemetry" and error.code() is grpc.StatusCode.INVALID_ARGUMENT:
            return True  # it sends the code in an answer, then ends
        return error.code() is grpc.StatusCode.PERMISSION_DENIED
    return method.containing_service.name == "MessagingService" and any(one.status.code in REFUSED for one in said)


def test_every_method_of_the_snode_has_a_row() -> None:
    """G16: in the code and in the page no row is of a removed method, and a new method without a row fails here."""
    assert REQUIRED_PERMISSIONS.keys() == {name for (name, _), right in RIGHTS.items() if right.rights is not None}
    assert {name for name, _ in RIGHTS} == METHODS.keys()
    assert OBSERVED == OBSERVATIONS
    assert METHODS.keys() >= OBSERVED


async def test_every_method_answers_each_kind_of_stranger_as_the_table_says(tmp_path: Path) -> None:
    """G16: calls without a signature, with a wrong one, of disabled users, with no, other or partial permissions."""
    (tmp_path / "access.toml").write_text(RULES)
    settings = {"snode": {"access_file": str(tmp_path / "access.toml")}}
    entries = {user["access_key"]: user for user in tomllib.loads(RULES)["user"]}
    async with open_cluster(tmp_path, settings=settings) as cluster, asyncio.timeout(300):
        for user in USERS:
            about = namesrv_pb2.User(access_key=user, enabled=user != "disabled")
            await cluster.name_service.PutUser(namesrv_pb2.PutUserRequest(user=about, secret_key=SECRET))
        topic_id = (await cluster.create_topic("t", queues=1)).topic_id
        wrong: list[str] = []

        async def check(who: str, headers: Any, row: tuple[str, str]) -> None:
            name, requests = row[0], request_of(*row, topic_id)
            expected = who in USERS and who != "disabled" and RIGHTS[row].allow(entries[who], NAMES)
            expected |= who == "watch" and name in OBSERVED
            timeout_s = LET_THROUGH_S if expected else PATIENCE_S
            if await is_refused(cluster, METHODS[name], requests, (who, headers), timeout_s) is expected:
                wrong.append(f"{name} {row[1]} by {who}: {'refused' if expected else 'let through'}")

        strangers = {"unsigned": (), "liar": signed(cluster, "ann", "wrong secret")}
        everybody = strangers | {user: signed(cluster, user) for user in USERS}
        streams = [row for row in RIGHTS if METHODS[row[0]].server_streaming]
        for one in everybody.items():  # a user at a time: a client id of one user is not valid for another
            await asyncio.gather(*(check(*one, row) for row in RIGHTS if row not in streams))
        for variant in ("producer", ""):  # a client id is a producer's or a consumer's
            rows = [row for row in streams if (row[1] == "producer") is bool(variant)]
            await asyncio.gather(*(check(*one, row) for one in everybody.items() for row in rows))
        assert wrong == []
