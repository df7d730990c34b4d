"""Permissions are checked for the resource that a request touches, whatever else it names."""

import asyncio
import stat
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration

from apache.rocketmq.v2 import definition_pb2 as d
from apache.rocketmq.v2 import service_pb2 as s
from apache.rocketmq.v2.service_pb2_grpc import MessagingServiceStub
from ortoo.client import App, Forbidden
from ortoo.common.groups.handle import HandleKind, read_handle
from ortoo.common.grpc.cluster_token import ADMIN_TOKEN
from ortoo.keda import externalscaler_pb2 as scaler_pb
from ortoo.keda.externalscaler_pb2_grpc import ExternalScalerStub
from ortoo.snode.rocketmq.clients import table
from ortoo.v1 import (
    admin_pb2,
    client_pb2,
    consumer_pb2,
    enode_deferred_pb2,
    namesrv_pb2,
    pop_pb2,
    producer_pb2,
    pull_pb2,
    record_pb2,
    session_pb2,
    topic_pb2,
)
from ortoo.v1.admin_pb2_grpc import AdminServiceStub
from ortoo.v1.consumer_pb2_grpc import ConsumerServiceStub
from ortoo.v1.enode_pb2_grpc import EnodeServiceStub
from ortoo.v1.producer_pb2_grpc import ProducerServiceStub
from ortoo.v1.session_pb2_grpc import SessionServiceStub
from ortoo.verification.servers.cluster import open_cluster
from ortoo.verification.servers.valkey import valkey
from tests.integration.guarded_cluster import RULES, SECRET, as_user, guarded, signed, signed_headers

WHO = (("x-mq-client-id", "c"),)


def resource(name: str) -> d.Resource:
    """A name, as RocketMQ's protocol writes it."""
    return d.Resource(name=name)


async def test_a_handle_counts_for_its_own_topic_alone(tmp_path: Path) -> None:
    """Ack, Forward, ChangeInvisible, Recall and EndTransaction refuse a handle of a topic that they do not name."""
    async with open_cluster(tmp_path) as cluster, asyncio.timeout(60):
        for name in ("secret", "mine"):
            await cluster.create_topic(name, queues=1)
        channel = cluster.channels.channel_to(cluster.address)
        stub, producer, consumer = (
            MessagingServiceStub(channel),
            ProducerServiceStub(channel),
            ConsumerServiceStub(channel),
        )
        message = record_pb2.Message(body=b"x")
        await producer.Publish(producer_pb2.PublishRequest(topic="secret", messages=[message]))
        start = pop_pb2.PopOptions(start_from=pop_pb2.POP_START_FIRST)
        popped = await consumer.Pop(pop_pb2.PopRequest(group="g", topic="secret", wait_ms=5_000, options=start))
        handle = popped.batches[0].receipt_handle
        group, mine, secret = resource("g"), resource("mine"), resource("secret")
        entry = s.AckMessageEntry(message_id="m", receipt_handle=handle)
        acked = await stub.AckMessage(s.AckMessageRequest(group=group, topic=mine, entries=[entry]), metadata=WHO)
        parked = await stub.ForwardMessageToDeadLetterQueue(
            s.ForwardMessageToDeadLetterQueueRequest(group=group, topic=mine, receipt_handle=handle, message_id="m"),
            metadata=WHO,
        )
        later = await stub.ChangeInvisibleDuration(
            s.ChangeInvisibleDurationRequest(
                group=group, topic=mine, receipt_handle=handle, invisible_duration=Duration(seconds=20)
            ),
            metadata=WHO,
        )
        assert acked.entries[0].status.code == d.INVALID_RECEIPT_HANDLE
        assert (parked.status.code, later.status.code) == (d.INVALID_RECEIPT_HANDLE, d.INVALID_RECEIPT_HANDLE)
        begun = await producer.BeginTransaction(
            producer_pb2.BeginTransactionRequest(topic="secret", messages=[message], producer_group="p")
        )
        ended = await stub.EndTransaction(
            s.EndTransactionRequest(
                topic=mine, transaction_id=begun.transaction_id, message_id="m", resolution=d.COMMIT
            ),
            metadata=WHO,
        )
        assert ended.status.code == d.INVALID_RECEIPT_HANDLE
        # With the right names the calls succeed: nothing was acknowledged before.
        acked = await stub.AckMessage(s.AckMessageRequest(group=group, topic=secret, entries=[entry]), metadata=WHO)
        assert acked.entries[0].status.code == d.OK


async def test_a_delayed_message_is_recalled_by_its_own_topic_alone(tmp_path: Path) -> None:
    """A forged handle for topic `mine` with the number of a message of `secret` finds nothing at the enode."""
    async with open_cluster(tmp_path) as cluster, asyncio.timeout(60):
        await cluster.create_topic("secret", queues=1)
        mine = await cluster.create_topic("mine", queues=1)
        producer = ProducerServiceStub(cluster.channels.channel_to(cluster.address))
        late = record_pb2.Message(body=b"x", deliver_at_ms=cluster.clock.now_ms() + 3_600_000)
        sent = await producer.Publish(producer_pb2.PublishRequest(topic="secret", messages=[late]))
        known = read_handle(sent.receipts[0].recall_handle, HandleKind.DELAYED, "recall_handle", await cluster.seals())
        enode = cluster.address_of("enode-0")
        stub = EnodeServiceStub(cluster.channels.channel_to(enode))
        request = enode_deferred_pb2.RecallDelayedRequest(
            topic_id=mine.topic_id, timer_id=known.number, deliver_at_ms=known.time_ms
        )
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await stub.RecallDelayed(request)
        assert refused.value.code() is grpc.StatusCode.NOT_FOUND
        await producer.RecallMessage(producer_pb2.RecallMessageRequest(recall_handle=sent.receipts[0].recall_handle))


async def test_the_queue_of_a_request_counts_as_its_topic(tmp_path: Path) -> None:
    """`topic=t, queue.topic=u` needs permissions for both, and is refused in any case since it names two topics."""
    async with guarded(tmp_path) as cluster, asyncio.timeout(60):
        producer = ProducerServiceStub(cluster.channels.channel_to(cluster.address))
        queue = topic_pb2.Queue(topic="u", enode="enode-0", queue_id=0)
        messages = [record_pb2.Message(body=b"x")]
        begin = producer_pb2.BeginTransactionRequest(topic="t", messages=messages, producer_group="p", queue=queue)
        publish = producer_pb2.PublishRequest(topic="t", messages=messages, queue=queue)
        for user, code in (("shop", grpc.StatusCode.PERMISSION_DENIED), ("ann", grpc.StatusCode.INVALID_ARGUMENT)):
            for call in (
                producer.BeginTransaction(begin, metadata=signed(cluster, user)),
                producer.Publish(publish, metadata=signed(cluster, user)),
            ):
                with pytest.raises(grpc.aio.AioRpcError) as refused:
                    await call
                assert refused.value.code() is code


async def test_the_lag_of_a_group_shows_only_topics_of_the_user(tmp_path: Path) -> None:
    """The ends of queues are shown to users with a permission for the topic."""
    async with guarded(tmp_path) as cluster, asyncio.timeout(60):
        admin = AdminServiceStub(cluster.channels.channel_to(cluster.address))
        await cluster.name_service.PutGroup(namesrv_pb2.PutGroupRequest(group=topic_pb2.Group(name="g")))
        await admin.DescribeLag(admin_pb2.DescribeLagRequest(group="g", topic="t"), metadata=signed(cluster, "shop"))
        with pytest.raises(grpc.aio.AioRpcError, match="topic 'u'"):
            await admin.DescribeLag(
                admin_pb2.DescribeLagRequest(group="g", topic="u"), metadata=signed(cluster, "shop")
            )


async def test_a_session_belongs_to_who_opened_it(tmp_path: Path) -> None:
    """Another user of the group sees no session ids, and can neither use one nor take a client's place."""
    async with guarded(tmp_path) as cluster, asyncio.timeout(60):
        channel = cluster.channels.channel_to(cluster.address)
        consumer, sessions = ConsumerServiceStub(channel), SessionServiceStub(channel)
        connected = sessions.Connect(metadata=signed(cluster, "shop"))
        await connected.write(session_pb2.ConnectRequest(hello=session_pb2.Hello(client_id="c")))
        opened = await connected.read()
        assert isinstance(opened, session_pb2.ConnectResponse)
        session_id = opened.opened.session_id
        wanted = [consumer_pb2.Subscription(topic="t")]
        register = session_pb2.RegisterConsumer(group="g", subscriptions=wanted)
        await connected.write(session_pb2.ConnectRequest(register_consumer=register))
        await connected.read()
        request = pull_pb2.QueryMembersRequest(group="g")
        told = {
            user: (await consumer.QueryMembers(request, metadata=signed(cluster, user))).members[0].session_id
            for user in ("shop", "reader", "ann")
        }
        assert told == {"shop": session_id, "reader": "", "ann": session_id}
        by_session: dict[str, Any] = {"session_id": session_id}
        by_client: dict[str, Any] = {"client_id": "c"}
        for stolen in (by_session, by_client):
            push = consumer.Push(metadata=signed(cluster, "reader"))
            await push.write(
                consumer_pb2.PushRequest(open=consumer_pb2.OpenSession(group="g", subscriptions=wanted, **stolen))
            )
            with pytest.raises(grpc.aio.AioRpcError, match="belongs to another user"):
                while await push.read() is not grpc.aio.EOF:
                    pass
            lock = pull_pb2.LockQueuesRequest(
                group="g", queues=[topic_pb2.Queue(topic="t", enode="enode-0", queue_id=0)], **stolen
            )
            with pytest.raises(grpc.aio.AioRpcError, match="belongs to another user"):
                await consumer.LockQueues(lock, metadata=signed(cluster, "reader"))
        own = consumer.Push(metadata=signed(cluster, "shop"))
        await own.write(consumer_pb2.PushRequest(open=consumer_pb2.OpenSession(group="g", session_id=session_id)))
        assert isinstance(await own.read(), consumer_pb2.PushResponse)


async def test_a_client_id_belongs_to_who_used_it_first(tmp_path: Path) -> None:
    """Another user can neither end its leases nor receive its commands, until the client has left."""
    async with guarded(tmp_path) as cluster, asyncio.timeout(60):
        stub = MessagingServiceStub(cluster.channels.channel_to(cluster.address))
        shop, reader = (*WHO, *signed(cluster, "shop")), (*WHO, *signed(cluster, "reader"))
        publishing = d.Publishing(topics=[resource("t")])
        telemetry = stub.Telemetry(metadata=shop)
        settings = d.Settings(client_type=d.PRODUCER, publishing=publishing)
        await telemetry.write(s.TelemetryCommand(settings=settings))
        said = await telemetry.read()
        assert isinstance(said, s.TelemetryCommand)
        assert said.status.code == d.OK
        left = await stub.NotifyClientTermination(s.NotifyClientTerminationRequest(), metadata=reader)
        assert left.status.code == d.FORBIDDEN
        beat = s.HeartbeatRequest(client_type=d.SIMPLE_CONSUMER, group=resource("g"))
        assert (await stub.Heartbeat(beat, metadata=reader)).status.code == d.FORBIDDEN
        subscription = d.Subscription(group=resource("g"))
        theirs = d.Settings(client_type=d.SIMPLE_CONSUMER, subscription=subscription)

        async def commands() -> AsyncIterator[s.TelemetryCommand]:
            yield s.TelemetryCommand(settings=theirs)

        # A `write` after the stream was refused would fail, and lose the answer.
        refused = await stub.Telemetry(commands(), metadata=reader).read()
        assert isinstance(refused, s.TelemetryCommand)
        assert refused.status.code == d.FORBIDDEN
        gone = await stub.NotifyClientTermination(s.NotifyClientTerminationRequest(), metadata=shop)
        assert gone.status.code == d.OK
        assert (await stub.Heartbeat(beat, metadata=reader)).status.code == d.OK


async def test_the_client_ids_of_one_user_do_not_keep_another_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A user that invents client ids is refused before the table is full, and other users' clients are served."""
    monkeypatch.setattr(table, "CLIENTS_MAX", 50)
    async with guarded(tmp_path) as cluster, asyncio.timeout(60):
        stub = MessagingServiceStub(cluster.channels.channel_to(cluster.address))
        beat = s.HeartbeatRequest(client_type=d.SIMPLE_CONSUMER, group=resource("g"))

        async def beats(user: str, number: int) -> s.HeartbeatResponse:
            identity = (("x-mq-client-id", f"{user}-{number}"), *signed(cluster, user))
            return await stub.Heartbeat(beat, metadata=identity)

        answers = [await beats("reader", number) for number in range(60)]
        assert [one.status.code for one in answers] == [d.OK] * 40 + [d.TOO_MANY_REQUESTS] * 20
        assert "40 of them from reader" in answers[-1].status.message
        for other in ("shop", "ann"):
            assert (await beats(other, 0)).status.code == d.OK


async def test_a_deleted_users_streams_end(tmp_path: Path) -> None:
    """Within half a minute, even if they are idle; another user's stream stays open."""
    async with guarded(tmp_path) as cluster, asyncio.timeout(90):
        channel = cluster.channels.channel_to(cluster.address)
        pushes = {}
        for user in ("shop", "reader"):
            push = pushes[user] = ConsumerServiceStub(channel).Push(metadata=signed(cluster, user))
            wanted = consumer_pb2.OpenSession(group="g", subscriptions=[consumer_pb2.Subscription(topic="t")])
            await push.write(consumer_pb2.PushRequest(open=wanted))
            assert isinstance(await push.read(), consumer_pb2.PushResponse)
        await cluster.name_service.DeleteUser(namesrv_pb2.DeleteUserRequest(access_key="reader"))
        async with asyncio.timeout(60):
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                while await pushes["reader"].read() is not grpc.aio.EOF:
                    pass
        assert refused.value.code() is grpc.StatusCode.PERMISSION_DENIED
        await pushes["shop"].write(consumer_pb2.PushRequest(close=consumer_pb2.CloseSession()))
        last = consumer_pb2.PushResponse()
        while isinstance(said := await pushes["shop"].read(), consumer_pb2.PushResponse):
            last = said
        assert last.closed.message == "the client left"


@pytest.mark.parametrize("date_time", ["hello", "19990101T000000Z", "1999-01-01T00:00:00+00:00", "9" * 100])
async def test_a_signature_is_good_for_a_few_minutes(date_time: str, tmp_path: Path) -> None:
    """In each protocol; the refusal names both times."""
    async with guarded(tmp_path) as cluster, asyncio.timeout(60):
        old = signed_headers("ann", SECRET, date_time)
        channel = cluster.channels.channel_to(cluster.address)
        with pytest.raises(grpc.aio.AioRpcError, match=r"is not a time|signed at .* clock shows 2") as refused:
            await AdminServiceStub(channel).ListTopics(namesrv_pb2.ListTopicsRequest(), metadata=old)
        assert refused.value.code() is grpc.StatusCode.PERMISSION_DENIED
        route = s.QueryRouteRequest(topic=resource("t"))
        answer = await MessagingServiceStub(channel).QueryRoute(route, metadata=(*WHO, *old))
        assert answer.status.code == d.UNAUTHORIZED


async def test_secrets_are_for_their_owner_and_users_for_the_cluster(tmp_path: Path) -> None:
    """No file of the name server shows a secret, also an older one; calls about users need a token."""
    token = tmp_path / "token"
    token.write_text("a-token-of-this-cluster\n")
    own = {"admin_token_file": str(token)}
    folder = tmp_path / "namesrv"
    folder.mkdir()
    (folder / "namesrv.db").touch(0o644)
    rules = tmp_path / "access.toml"
    rules.write_text(RULES)
    settings = {"namesrv": own, "snode": {**own, "access_file": str(rules)}}
    async with open_cluster(tmp_path, settings=settings) as cluster, asyncio.timeout(60):
        put = namesrv_pb2.PutUserRequest(user=namesrv_pb2.User(access_key="ann"), secret_key=SECRET)
        stub = cluster.name_service
        for call in (
            stub.PutUser(put),
            stub.GetUser(namesrv_pb2.GetUserRequest(access_key="ann")),
            stub.ListUsers(namesrv_pb2.ListUsersRequest(), metadata=[(ADMIN_TOKEN, "another-token-16")]),
            stub.DeleteUser(namesrv_pb2.DeleteUserRequest(access_key="ann")),
        ):
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await call
            assert refused.value.code() is grpc.StatusCode.PERMISSION_DENIED
        made = await stub.PutUser(put, metadata=[(ADMIN_TOKEN, "a-token-of-this-cluster")])
        assert made.user.enabled
        admin, ann = AdminServiceStub(cluster.channels.channel_to(cluster.address)), signed(cluster, "ann")
        off = namesrv_pb2.PutUserRequest(user=namesrv_pb2.User(access_key="bob", enabled=False), secret_key=SECRET)
        assert not (await admin.PutUser(off, metadata=ann)).user.enabled
        again = namesrv_pb2.PutUserRequest(user=namesrv_pb2.User(access_key="bob"), secret_key="another")
        assert not (await admin.PutUser(again, metadata=ann)).user.enabled
        files = sorted(folder.glob("namesrv.db*"))
        modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in files if path.suffix != ".lock"}
        assert {"namesrv.db", "namesrv.db-wal"} <= modes.keys()
        assert set(modes.values()) == {0o600}


@pytest.mark.parametrize("is_open", [False, True])
async def test_the_autoscaler_tells_only_who_may_know(tmp_path: Path, *, is_open: bool) -> None:
    """With access control it needs permissions for the group and the topic, unless an operator opens it."""
    async with guarded(tmp_path, scaler_open=is_open) as cluster, asyncio.timeout(60):
        scaler = ExternalScalerStub(cluster.channels.channel_to(cluster.address))
        about = {name: scaler_pb.ScaledObjectRef(scalerMetadata={"group": "g", "topic": name}) for name in ("t", "u")}
        assert not (await scaler.IsActive(about["t"], metadata=signed(cluster, "reader"))).result
        if is_open:
            assert not (await scaler.IsActive(about["u"])).result
            return
        metrics = scaler_pb.GetMetricsRequest(scaledObjectRef=about["u"], metricName="lag")
        for call in (
            scaler.IsActive(about["t"]),
            scaler.IsActive(about["u"], metadata=signed(cluster, "reader")),
            scaler.GetMetrics(metrics, metadata=signed(cluster, "reader")),
        ):
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await call
            assert refused.value.code() is grpc.StatusCode.PERMISSION_DENIED


async def test_an_admins_command_reaches_a_client_of_another_snode(tmp_path: Path) -> None:
    """It is forwarded with the admin's signature."""
    async with (
        valkey(tmp_path / "valkey") as server,
        guarded(tmp_path, snodes=2, redis_url=server.url, membership_timeout_s=1.0) as cluster,
        asyncio.timeout(60),
    ):
        first, second = (cluster.channels.channel_to(cluster.address_of(f"snode-{number}")) for number in (0, 1))
        connected = SessionServiceStub(second).Connect(metadata=signed(cluster, "shop"))
        await connected.write(session_pb2.ConnectRequest(hello=session_pb2.Hello(client_id="c")))
        wanted = session_pb2.RegisterConsumer(group="g", subscriptions=[consumer_pb2.Subscription(topic="t")])
        await connected.write(session_pb2.ConnectRequest(register_consumer=wanted))
        request = client_pb2.DescribeClientRequest(client_id="c")
        found = client_pb2.DescribeClientResponse()
        while not found.client.snode:
            try:
                found = await AdminServiceStub(first).DescribeClient(request, metadata=signed(cluster, "ann"))
            except grpc.aio.AioRpcError as error:
                if error.code() is not grpc.StatusCode.NOT_FOUND:
                    raise
                await cluster.clock.sleep(0.05)
        assert found.client.snode == "snode-1"


async def test_a_program_with_schedules_needs_no_admin(tmp_path: Path) -> None:
    """`PUB` on the topic is enough if the topic exists; schedules of other topics cannot be read or changed."""
    app, stranger, called = App("g"), App("g"), asyncio.Event()

    async def tick() -> None:
        called.set()

    app.every(timedelta(seconds=1), topic="t")(tick)
    stranger.every(timedelta(seconds=1), topic="u")(tick)
    async with guarded(tmp_path) as cluster, asyncio.timeout(60):
        async with as_user(cluster, "shop") as mq:
            async with app.running(mq):
                await called.wait()
            with pytest.raises(Forbidden):
                async with stranger.running(mq):
                    pass
        async with as_user(cluster, "ann") as mq:
            await mq.admin.schedules.create("u", "own", b"secret", every=timedelta(hours=1))
        for user, topic, name in (("shop", "u", "own"), ("reader", "t", "tick")):
            async with as_user(cluster, user) as mq:
                schedules = mq.admin.schedules
                for call in (
                    schedules.describe(topic, name),
                    schedules.suspend(topic, name),
                    schedules.resume(topic, name),
                    schedules.delete(topic, name),
                    schedules.create(topic, name, b"x", every=timedelta(hours=1), replace=True),
                    schedules.list(topic),
                ):
                    with pytest.raises(Forbidden):
                        await call
