"""Handles that the cluster did not make are refused by every call, and change nothing."""

import asyncio
from dataclasses import replace
from pathlib import Path

import grpc
import pytest
import sqlalchemy as sa

from apache.rocketmq.v2 import definition_pb2 as d
from apache.rocketmq.v2 import service_pb2 as s
from apache.rocketmq.v2.service_pb2_grpc import MessagingServiceStub
from ortoo.client import Message, connect
from ortoo.client.pop.pop_calls import PopCalls
from ortoo.common.errors import Invalid
from ortoo.common.groups.handle import Handle, HandleKind, read_handle
from ortoo.common.groups.handle_seal import HandleKey, HandleKeys, HandleSeals
from ortoo.common.process.background import Background
from ortoo.common.process.clock import SystemClock
from ortoo.common.process.randomness import Randomness
from ortoo.namesrv.catalog import schema
from ortoo.namesrv.catalog.catalog import Catalog
from ortoo.namesrv.catalog.encryption import Encryption
from ortoo.namesrv.decisions.handle_keys import DAY_MS, HANDLE_LIFETIME_MS, KeyRotation
from ortoo.namesrv.decisions.routes.route_changes import StoredDirectory
from ortoo.namesrv.directory.directory import Directory
from ortoo.snode.pop.receipt_handle import ReceiptHandle, read_receipt
from ortoo.snode.rocketmq.send.recall_message import join_handle
from ortoo.v1 import enode_deferred_pb2, failure_pb2, namesrv_pb2, pop_pb2, producer_pb2, record_pb2
from ortoo.v1.consumer_pb2_grpc import ConsumerServiceStub
from ortoo.v1.producer_pb2_grpc import ProducerServiceStub
from ortoo.verification.servers.cluster import InProcessCluster, open_cluster
from ortoo.verification.time.virtual_clock import VirtualClock

WHO = (("x-mq-client-id", "c"),)
HOUR_MS = 3_600_000


def strangers() -> list[HandleSeals]:
    """Seals of attackers who know the format of handles and have no key, or one of their own."""
    own = HandleSeals()
    own.use_keys(HandleKeys((HandleKey(1, bytes(32), 0),)))
    return [HandleSeals(), own]


async def popped(cluster: InProcessCluster) -> str:
    """Send a message to `t`, and lease it to group `g`."""
    channel = cluster.channels.channel_to(cluster.address)
    message = record_pb2.Message(body=b"x")
    await ProducerServiceStub(channel).Publish(producer_pb2.PublishRequest(topic="t", messages=[message]))
    start = pop_pb2.PopOptions(start_from=pop_pb2.POP_START_FIRST)
    request = pop_pb2.PopRequest(group="g", topic="t", wait_ms=5_000, options=start)
    return (await ConsumerServiceStub(channel).Pop(request)).batches[0].receipt_handle


async def test_a_made_up_receipt_settles_nothing(tmp_path: Path) -> None:
    """Ack, Nack, ChangeInvisible and RocketMQ's calls refuse it, each with its status; the genuine one stays valid."""
    async with open_cluster(tmp_path) as cluster, asyncio.timeout(60):
        await cluster.create_topic("t", queues=1)
        real = await popped(cluster)
        channel, known = cluster.channels.channel_to(cluster.address), read_receipt(real, await cluster.seals())
        forged = [known.encoded(seals) for seals in strangers()]
        consumer, stub = ConsumerServiceStub(channel), MessagingServiceStub(channel)
        group, topic = d.Resource(name="g"), d.Resource(name="t")
        for text in forged:
            lease = pop_pb2.LeaseReceipt(receipt_handle=text, offsets=[0])
            for call in (
                consumer.Ack(pop_pb2.AckRequest(receipts=[lease])),
                consumer.Nack(pop_pb2.NackRequest(receipts=[lease])),
                consumer.ChangeInvisible(pop_pb2.ChangeInvisibleRequest(receipts=[lease], invisible_ms=60_000)),
            ):
                with pytest.raises(grpc.aio.AioRpcError, match="receipt_handle") as refused:
                    await call
                assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
            forward = s.ForwardMessageToDeadLetterQueueRequest(group=group, topic=topic, receipt_handle=text)
            parked = await stub.ForwardMessageToDeadLetterQueue(forward, metadata=WHO)
            hidden = s.ChangeInvisibleDurationRequest(group=group, topic=topic, receipt_handle=text)
            later = await stub.ChangeInvisibleDuration(hidden, metadata=WHO)
            assert (parked.status.code, later.status.code) == (d.INVALID_RECEIPT_HANDLE,) * 2
        rows = [s.AckMessageEntry(message_id="m", receipt_handle=text) for text in (*forged, real)]
        acked = await stub.AckMessage(s.AckMessageRequest(group=group, topic=topic, entries=rows), metadata=WHO)
        assert [one.status.code for one in acked.entries] == [d.INVALID_RECEIPT_HANDLE, d.INVALID_RECEIPT_HANDLE, d.OK]


async def test_a_made_up_receipt_among_good_ones_is_refused_alone(tmp_path: Path) -> None:
    """Ack, Nack and ChangeInvisible name the receipt and the reason; the others of the call succeed."""
    async with open_cluster(tmp_path) as cluster, asyncio.timeout(60):
        await cluster.create_topic("t", queues=1)
        real, other = await popped(cluster), await popped(cluster)
        forged = read_receipt(real, await cluster.seals()).encoded(strangers()[1])
        consumer = ConsumerServiceStub(cluster.channels.channel_to(cluster.address))
        leases = [pop_pb2.LeaseReceipt(receipt_handle=text) for text in (real, forged, "nonsense", other)]
        later = await consumer.ChangeInvisible(pop_pb2.ChangeInvisibleRequest(receipts=leases, invisible_ms=60_000))
        acked = await consumer.Ack(pop_pb2.AckRequest(receipts=leases[:3]))
        back = await consumer.Nack(pop_pb2.NackRequest(receipts=leases[1:], delay_ms=0))
        for answer in (later, acked, back):
            assert [one.receipt_handle for one in answer.refused] == [forged, "nonsense"]
            assert {one.failure.kind for one in answer.refused} == {failure_pb2.FAILURE_KIND_INVALID}
            assert {one.failure.field for one in answer.refused} == {"receipts.receipt_handle"}
            assert not answer.stale
        again = await consumer.Pop(pop_pb2.PopRequest(group="g", topic="t", wait_ms=5_000))
        assert [list(one.offsets) for one in again.batches] == [[1]]  # nacked; the first never comes again


async def test_one_refused_receipt_fails_nobody_elses_acknowledgement(tmp_path: Path) -> None:
    """G14: acknowledgements of several workers of a client are sent together, and each worker gets its own result."""
    async with open_cluster(tmp_path) as cluster, asyncio.timeout(60):
        await cluster.create_topic("t", queues=1)
        real = await popped(cluster)
        async with connect(cluster.address) as mq, Background("acks") as background:
            calls = PopCalls(mq._connection, background, retry_timeout_s=0)
            good, bad = await asyncio.gather(
                calls.ack("enode-0", real, [0]), calls.ack("enode-0", "nonsense", [0]), return_exceptions=True
            )
        assert good == []
        assert isinstance(bad, Invalid)
        assert bad.field == "receipts.receipt_handle"


async def test_a_made_up_handle_recalls_nothing_and_ends_nothing(tmp_path: Path) -> None:
    """In both protocols, for messages of single sends; the guessed messages are unchanged."""
    async with open_cluster(tmp_path) as cluster, asyncio.timeout(60):
        await cluster.create_topic("t", queues=1)
        channel, seals = cluster.channels.channel_to(cluster.address), await cluster.seals()
        producer, stub = ProducerServiceStub(channel), MessagingServiceStub(channel)
        late = record_pb2.Message(body=b"x", deliver_at_ms=cluster.clock.now_ms() + HOUR_MS)
        sent = await producer.Publish(producer_pb2.PublishRequest(topic="t", messages=[late]))
        delayed = read_handle(sent.receipts[0].recall_handle, HandleKind.DELAYED, "recall_handle", seals)
        begin = producer_pb2.BeginTransactionRequest(
            topic="t", messages=[record_pb2.Message(body=b"x")], producer_group="p"
        )
        begun = await producer.BeginTransaction(begin)
        half = read_handle(begun.transaction_id, HandleKind.TRANSACTION, "transaction_id", seals)
        topic, commit = d.Resource(name="t"), enode_deferred_pb2.VERDICT_COMMIT
        for stranger in strangers():
            for call in (
                producer.RecallMessage(producer_pb2.RecallMessageRequest(recall_handle=delayed.encoded(stranger))),
                producer.EndTransaction(
                    producer_pb2.EndTransactionRequest(transaction_id=half.encoded(stranger), verdict=commit)
                ),
            ):
                with pytest.raises(grpc.aio.AioRpcError) as refused:
                    await call
                assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
            recall = s.RecallMessageRequest(topic=topic, recall_handle=join_handle(delayed.encoded(stranger), "m"))
            assert (await stub.RecallMessage(recall, metadata=WHO)).status.code == d.BAD_REQUEST
            end = s.EndTransactionRequest(
                topic=topic, transaction_id=half.encoded(stranger), message_id="m", resolution=d.COMMIT
            )
            assert (await stub.EndTransaction(end, metadata=WHO)).status.code == d.INVALID_TRANSACTION_ID
        await producer.RecallMessage(producer_pb2.RecallMessageRequest(recall_handle=sent.receipts[0].recall_handle))
        await producer.EndTransaction(
            producer_pb2.EndTransactionRequest(transaction_id=begun.transaction_id, verdict=commit)
        )


async def test_a_producer_of_batches_recalls_its_own_messages_alone(tmp_path: Path) -> None:
    """The handles that it makes are valid for its batch, and for no other message."""
    async with open_cluster(tmp_path) as cluster, asyncio.timeout(60):
        await cluster.create_topic("t", queues=1)
        seals, at_ms = await cluster.seals(), cluster.clock.now_ms() + HOUR_MS
        async with connect(cluster.address) as mq, mq.producer("t") as producer:
            sent = [await producer.enqueue(Message(b"%d" % n, deliver_at_ms=at_ms + n)) for n in range(4)]
            handles = [(await sending).recall_handle for sending in sent]
            known = [read_handle(text, HandleKind.DELAYED, "recall_handle", seals) for text in handles]
            numbers = {one.number for one in known}
            assert len(numbers) == 4
            for stranger in strangers():
                with pytest.raises(Invalid):
                    await mq.recall(replace(known[0]).encoded(stranger))
            for text in handles:
                await mq.recall(text)


def directory_of(catalog: Catalog, stored: StoredDirectory, clock: VirtualClock, rotation: KeyRotation) -> Directory:
    """A directory over a catalog."""
    return Directory(
        catalog, stored, lease_s=30, deletion_grace_ms=0, watchers_max=9, rotation=rotation, clock=clock,
        randomness=Randomness(8),
    )  # fmt: skip


async def test_keys_are_made_changed_and_kept(tmp_path: Path) -> None:
    """One at first, a new one when it is old enough; deleted when no valid handle can carry it."""
    clock, rotation = VirtualClock(), KeyRotation(30 * DAY_MS)
    catalog = await Catalog.open("", tmp_path, "00000000-0000-4000-8000-000000000001")
    try:
        directory = directory_of(catalog, await catalog.load_all(), clock, rotation)
        counts = []
        for _ in range(16):
            await directory.rotate_handle_keys()
            await directory.rotate_handle_keys()
            counts.append(len((await catalog.load_all()).handle_keys))
            clock.set_wall(clock.now_ms() + 30 * DAY_MS)
        kept = HANDLE_LIFETIME_MS // (30 * DAY_MS) + 2
        assert counts == [min(n, kept) for n in range(1, 17)]
        keys = (await catalog.load_all()).handle_keys
        assert len({key.key_id for key in keys}) == len({key.secret for key in keys}) == kept
        assert not (await catalog.load_all()).unsigned_handles
    finally:
        await catalog.close()


async def test_an_upgraded_directory_takes_old_handles_for_a_while(tmp_path: Path) -> None:
    """A new directory accepts none; one from before there were keys accepts them for the grace after its first key."""
    with sa.create_engine(f"sqlite:///{tmp_path / 'namesrv.db'}").begin() as connection:
        connection.execute(sa.text("CREATE TABLE alembic_version (version_num VARCHAR(32) PRIMARY KEY)"))
        schema._migrate(connection, "", to="0008")
        for statement in (
            "INSERT INTO directory VALUES (1, 1, 1, '00000000-0000-4000-8000-000000000001')",
            "INSERT INTO users (access_key, secret_key, enabled, created_at_ms) VALUES ('ann', 's3cret', 1, 5)",
        ):
            connection.execute(sa.text(statement))
    async with open_cluster(tmp_path / "new", settings={"namesrv": {"data_dir": tmp_path}}) as cluster:
        await cluster.create_topic("t", queues=1)
        real = await popped(cluster)
        known = read_receipt(real, await cluster.seals())
        lease = pop_pb2.LeaseReceipt(receipt_handle=known.encoded(HandleSeals()), offsets=[0])
        answer = await ConsumerServiceStub(cluster.channels.channel_to(cluster.address)).Ack(
            pop_pb2.AckRequest(receipts=[lease])
        )
        assert not answer.stale
        watch = cluster.name_service.WatchRoutes(namesrv_pb2.WatchRoutesRequest(include_handle_keys=True))
        news = await watch.read()
        assert isinstance(news, namesrv_pb2.WatchRoutesResponse)
        [key] = news.handle_keys.keys
        assert news.handle_keys.unsigned_until_ms == key.created_at_ms + DAY_MS
        plain = await cluster.name_service.WatchRoutes(namesrv_pb2.WatchRoutesRequest()).read()
        assert isinstance(plain, namesrv_pb2.WatchRoutesResponse)
        assert not plain.HasField("handle_keys")
        user = await cluster.name_service.GetUser(namesrv_pb2.GetUserRequest(access_key="ann"))
        assert user.secret_key == "s3cret"


async def test_a_new_key_reaches_snodes_and_old_handles_go_on(tmp_path: Path) -> None:
    """A snode gets it by its watch, and keeps the older keys; it keeps all of them without name servers."""
    async with open_cluster(tmp_path) as cluster, asyncio.timeout(60):
        await cluster.create_topic("t", queues=1)
        real = await popped(cluster)
        await cluster.close("namesrv-0")
        catalog = await Catalog.open("", tmp_path / "namesrv", "x")
        later = VirtualClock(SystemClock().now_ms() + 31 * DAY_MS)
        directory = directory_of(catalog, await catalog.load_all(), later, KeyRotation())
        await directory.rotate_handle_keys()
        new = (await catalog.load_all()).handle_keys[-1]
        await catalog.close()
        other = HandleSeals()
        other.use_keys(HandleKeys((new,)))
        known = read_receipt(real, None)
        stub = ConsumerServiceStub(cluster.channels.channel_to(cluster.address))

        def lease(text: str) -> pop_pb2.ChangeInvisibleRequest:
            receipt = pop_pb2.LeaseReceipt(receipt_handle=text, offsets=[0])
            return pop_pb2.ChangeInvisibleRequest(receipts=[receipt], invisible_ms=60_000)

        with pytest.raises(grpc.aio.AioRpcError):  # it has not been notified yet
            await stub.ChangeInvisible(lease(known.encoded(other)))
        assert not (await stub.ChangeInvisible(lease(real))).stale
        await cluster.open_namesrv()
        while True:
            try:
                assert not (await stub.ChangeInvisible(lease(known.encoded(other)))).stale
                break
            except grpc.aio.AioRpcError:
                await cluster.clock.sleep(0.05)
        assert not (await stub.ChangeInvisible(lease(real))).stale


async def test_keys_of_handles_are_encrypted_as_secrets_are(tmp_path: Path) -> None:
    """With a key file the database shows none of them."""
    key = Encryption(b"A" * 43 + b"=")
    catalog = await Catalog.open("", tmp_path, "x")
    try:
        directory = directory_of(catalog, await catalog.load_all(), VirtualClock(), KeyRotation())
        await directory.rotate_handle_keys()
        [made] = (await catalog.load_all()).handle_keys
        assert any(made.secret.hex().encode() in path.read_bytes() for path in tmp_path.glob("namesrv.db*"))
        await catalog.reencrypt_secrets(key)
        assert not any(made.secret.hex().encode() in path.read_bytes() for path in tmp_path.glob("namesrv.db*"))
        assert (await catalog.load_all()).handle_keys == (made,)
    finally:
        await catalog.close()


def test_forging_needs_no_more_than_reading_the_code() -> None:
    """The handles that these tests send would be accepted by a cluster without keys."""
    receipt = ReceiptHandle("enode-0", "g", 1, 0, 1, 0, 1)
    assert read_receipt(receipt.encoded(HandleSeals()), HandleSeals()) == receipt
    handle = Handle(HandleKind.DELAYED, "enode-0", 1, 0, 1, 1)
    assert read_handle(handle.encoded(HandleSeals()), HandleKind.DELAYED, "recall_handle", HandleSeals()) == handle
