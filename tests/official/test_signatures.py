"""Where signatures are required, those of the official clients are checked, and only known users are admitted."""

from pathlib import Path

import grpc
import pytest

from apache.rocketmq.v2 import service_pb2
from apache.rocketmq.v2.definition_pb2 import Code, Resource
from apache.rocketmq.v2.service_pb2_grpc import MessagingServiceStub
from ortoo.common.grpc.signature import sign
from ortoo.v1 import namesrv_pb2
from ortoo.verification.servers.cluster import open_cluster
from tests.official.client import LANGUAGES, ClientError, official

REQUIRED = {"snode": {"rocketmq_signatures_required": True}}
ANN = namesrv_pb2.PutUserRequest(user=namesrv_pb2.User(access_key="ann", enabled=True), secret_key="s3cret")


@pytest.mark.parametrize("language", LANGUAGES)
async def test_a_signed_client_works_and_others_do_not(language: str, tmp_path: Path) -> None:
    """The right secret gives access; a wrong one, an unknown user and no signature give none."""
    async with open_cluster(tmp_path, settings=REQUIRED) as cluster, official(language, cluster.address) as client:
        await cluster.create_topic("t")
        await cluster.name_service.PutUser(ANN)
        await client("producer", name="p", topics=["t"], credentials=["ann", "s3cret"])
        await client(
            "push", name="c", group="g", subscriptions={"t": {"expression": "*"}}, credentials=["ann", "s3cret"]
        )
        sent = await client("send", name="p", topic="t", body=b"x")
        assert [m["message_id"] for m in await client.messages("c", 1)] == [sent["message_id"]]
        for name, credentials in (("wrong", ["ann", "other!"]), ("unknown", ["bob", "s3cret"])):
            with pytest.raises(ClientError):
                await client("producer", name=name, topics=["t"], credentials=credentials)
                await client("send", name=name, topic="t", body=b"x")


@pytest.mark.parametrize("language", LANGUAGES)
async def test_an_official_client_may_what_its_user_may(language: str, tmp_path: Path) -> None:
    """E-247: with `PUB|SUB` and its group it sends and receives as usual. Another topic is refused."""
    rules = tmp_path / "access.toml"
    rules.write_text('[[user]]\naccess_key = "ann"\ntopics = { t = "PUB|SUB" }\ngroups = { g = "SUB" }\n')
    settings = {"snode": {"access_file": str(rules)}}
    async with open_cluster(tmp_path, settings=settings) as cluster, official(language, cluster.address) as client:
        for topic in ("t", "u"):
            await cluster.create_topic(topic)
        await cluster.name_service.PutUser(ANN)
        ann = ["ann", "s3cret"]
        await client("producer", name="p", topics=["t"], credentials=ann)
        await client("push", name="c", group="g", subscriptions={"t": {"expression": "*"}}, credentials=ann)
        sent = await client("send", name="p", topic="t", body=b"x")
        assert [m["message_id"] for m in await client.messages("c", 1)] == [sent["message_id"]]
        with pytest.raises(ClientError):
            await client("producer", name="q", topics=["u"], credentials=ann)
            await client("send", name="q", topic="u", body=b"x")


async def test_every_call_without_a_signature_is_unauthorized(tmp_path: Path) -> None:
    """Each kind of call answers with the code for it; the request itself is not processed."""
    async with open_cluster(tmp_path, settings=REQUIRED) as cluster:
        await cluster.create_topic("t")
        async with grpc.aio.insecure_channel(cluster.address) as channel:
            stub, metadata = MessagingServiceStub(channel), (("x-mq-client-id", "c"),)
            for method in (
                "QueryRoute", "Heartbeat", "SendMessage", "QueryAssignment", "AckMessage", "EndTransaction",
                "ForwardMessageToDeadLetterQueue", "UpdateOffset", "GetOffset", "QueryOffset", "RecallMessage",
                "NotifyClientTermination", "ChangeInvisibleDuration", "SyncLiteSubscription",
            ):  # fmt: skip
                request = getattr(service_pb2, f"{method}Request")()
                status = (await getattr(stub, method)(request, metadata=metadata)).status
                assert (method, status.code) == (method, Code.UNAUTHORIZED)
            for method in ("ReceiveMessage", "PullMessage"):
                request = getattr(service_pb2, f"{method}Request")()
                frames = [frame async for frame in getattr(stub, method)(request, metadata=metadata)]
                assert [frame.status.code for frame in frames] == [Code.UNAUTHORIZED]
            telemetry = stub.Telemetry(metadata=metadata)
            said = await telemetry.read()
            assert isinstance(said, service_pb2.TelemetryCommand)
            assert said.status.code == Code.UNAUTHORIZED


async def test_secrets_are_told_to_nobody_who_lists_users(tmp_path: Path) -> None:
    """Lists and answers name users only; a disabled user's signature is refused."""
    async with open_cluster(tmp_path, settings=REQUIRED) as cluster:
        await cluster.name_service.PutUser(ANN)
        listed = await cluster.name_service.ListUsers(namesrv_pb2.ListUsersRequest())
        assert [user.access_key for user in listed.users] == ["ann"]
        assert "s3cret" not in str(listed)
        disabled = namesrv_pb2.PutUserRequest(user=namesrv_pb2.User(access_key="ann", enabled=False))
        await cluster.name_service.PutUser(disabled)
        await cluster.create_topic("t")
        digest = sign("s3cret", "now").hex()
        metadata = (
            ("x-mq-client-id", "c"),
            ("x-mq-date-time", "now"),
            ("authorization", f"MQv2-HMAC-SHA1 Credential=ann, SignedHeaders=x-mq-date-time, Signature={digest}"),
        )
        async with grpc.aio.insecure_channel(cluster.address) as channel:
            request = service_pb2.QueryRouteRequest(topic=Resource(name="t"))
            answer = await MessagingServiceStub(channel).QueryRoute(request, metadata=metadata)
            assert answer.status.code == Code.UNAUTHORIZED
            await cluster.name_service.DeleteUser(namesrv_pb2.DeleteUserRequest(access_key="ann"))
