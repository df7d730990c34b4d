"""Popping through the wire: snode and enodes, handles, dead letters, filters, restarts."""

import asyncio
import contextlib
import hashlib
from pathlib import Path

import grpc
import pytest

from ortoo.client import Message, connect
from ortoo.common.grpc.bulk_calls import batch_of
from ortoo.common.process.clock import SystemClock
from ortoo.common.records.view import open_batch
from ortoo.v1 import consumer_pb2_grpc, pop_pb2, producer_pb2, producer_pb2_grpc, record_pb2, topic_pb2
from ortoo.verification.servers.cluster import InProcessCluster, open_cluster

CLOCK = SystemClock()


async def send(cluster: InProcessCluster, *bodies: str, topic: str = "jobs", tags: tuple[str, ...] = ()) -> None:
    """Send messages."""
    async with connect(cluster.address) as mq, mq.producer(topic) as producer:
        await (
            await producer.send_many(
                [Message(body.encode(), tags[at % len(tags)] if tags else None) for at, body in enumerate(bodies)]
            )
        )


def service(cluster: InProcessCluster, snode: str = "snode-0") -> consumer_pb2_grpc.ConsumerServiceStub:
    """The client of a snode's methods for consumers."""
    return consumer_pb2_grpc.ConsumerServiceStub(cluster.channels.channel_to(cluster.address_of(snode)))


def bodies(answer: pop_pb2.PopResponse) -> list[str]:
    """The bodies of all messages."""
    return [body.decode() for one in answer.batches for body in open_batch(batch_of(one.batch)).bodies()]


def receipts(answer: pop_pb2.PopResponse) -> list[pop_pb2.LeaseReceipt]:
    """The receipts of all messages."""
    return [pop_pb2.LeaseReceipt(receipt_handle=one.receipt_handle, offsets=one.offsets) for one in answer.batches]


async def test_messages_are_popped_from_all_queues_of_all_enodes_and_acknowledged(tmp_path: Path) -> None:
    """Each message once; any snode accepts the acknowledgement."""
    async with open_cluster(tmp_path, enodes=2) as cluster:
        await cluster.create_topic("jobs", queues=2)
        wanted = {f"job {number}" for number in range(100)}
        for number in range(100):
            await send(cluster, f"job {number}")
        stub = service(cluster)
        got: list[str] = []
        while len(got) < 100:
            answer = await stub.Pop(pop_pb2.PopRequest(group="g", topic="jobs", messages_max=7, wait_ms=1000))
            assert answer.batches
            got += bodies(answer)
            assert not (await stub.Ack(pop_pb2.AckRequest(receipts=receipts(answer)))).stale
        assert sorted(got) == sorted(wanted)
        assert not (await stub.Pop(pop_pb2.PopRequest(group="g", topic="jobs"))).batches


async def test_a_long_poll_over_several_enodes_is_answered_when_a_message_comes(tmp_path: Path) -> None:
    """Within a fraction of the wait."""
    async with open_cluster(tmp_path, enodes=2) as cluster:
        await cluster.create_topic("jobs", queues=2)
        stub = service(cluster)
        call = stub.Pop(pop_pb2.PopRequest(group="g", topic="jobs", wait_ms=60_000))
        began = CLOCK.monotonic_s()
        await send(cluster, "late")
        assert bodies(await call) == ["late"]
        assert CLOCK.monotonic_s() - began < 30


async def test_what_a_pop_got_while_it_was_called_off_comes_again_at_once(tmp_path: Path) -> None:
    """Messages of two enodes at the same moment: the pop that one of them answers costs the other's no attempt."""
    async with open_cluster(tmp_path, enodes=2) as cluster:
        await cluster.create_topic("jobs", queues=1)
        stub, attempts = service(cluster), set()
        producer = producer_pb2_grpc.ProducerServiceStub(cluster.channels.channel_to(cluster.address))
        one_each = [
            producer_pb2.PublishRequest(
                topic="jobs",
                messages=[record_pb2.Message(body=b"x")],
                queue=topic_pb2.Queue(topic="jobs", enode=enode, queue_id=0),
            )
            for enode in ("enode-0", "enode-1")
        ]
        for _ in range(30):
            call = stub.Pop(pop_pb2.PopRequest(group="g", topic="jobs", messages_max=8, wait_ms=20_000))
            await CLOCK.sleep(0.01)
            await asyncio.gather(*(producer.Publish(request) for request in one_each))
            got = 0
            async with asyncio.timeout(60):  # a lease would end after 30 s
                while got < len(one_each):
                    answer = await call
                    got += len(bodies(answer))
                    attempts |= {number for one in answer.batches for number in one.attempts}
                    if answer.batches:
                        await stub.Ack(pop_pb2.AckRequest(receipts=receipts(answer)))
                    call = stub.Pop(pop_pb2.PopRequest(group="g", topic="jobs", messages_max=8, wait_ms=1_000))
            call.cancel()
        assert attempts <= {1}


async def test_a_long_poll_outlives_an_enode_that_goes_away(tmp_path: Path) -> None:
    """The remaining enode delivers its messages, and the snode continues."""
    async with open_cluster(tmp_path, enodes=2) as cluster:
        await cluster.create_topic("jobs", queues=2)
        stub = service(cluster)
        call = stub.Pop(pop_pb2.PopRequest(group="g", topic="jobs", wait_ms=20_000))
        await CLOCK.sleep(0.2)
        await cluster.close("enode-1")
        await CLOCK.sleep(0.5)
        await send(cluster, "left")
        assert bodies(await call) == ["left"]
        assert (await stub.Pop(pop_pb2.PopRequest(group="h", topic="jobs", wait_ms=1_000))).batches


async def test_an_enode_that_stops_lets_pops_go_that_wait(tmp_path: Path) -> None:
    """They do not delay its stop, and their consumers keep waiting at the other enode."""
    async with open_cluster(tmp_path, enodes=2, settings={"enode": {"stop_grace_s": 3_600.0}}) as cluster:
        await cluster.create_topic("jobs", queues=2)
        call = service(cluster).Pop(pop_pb2.PopRequest(group="g", topic="jobs", wait_ms=60_000))
        await CLOCK.sleep(0.2)
        async with asyncio.timeout(60):
            await cluster.close("enode-1")
            await send(cluster, "left")
            assert bodies(await call) == ["left"]


async def test_nack_without_delay_is_back_within_100_ms(tmp_path: Path) -> None:
    """For a consumer that waits already; the fastest of several, because the machine may be busy."""
    async with open_cluster(tmp_path) as cluster:
        await cluster.create_topic("jobs")
        await send(cluster, "a")
        stub = service(cluster)
        answer = await stub.Pop(pop_pb2.PopRequest(group="g", topic="jobs"))
        taken_s = []
        for attempt in range(2, 8):
            waiting = stub.Pop(pop_pb2.PopRequest(group="g", topic="jobs", wait_ms=20_000))
            began = CLOCK.monotonic_s()
            await stub.Nack(pop_pb2.NackRequest(receipts=receipts(answer), delay_ms=0))
            answer = await waiting
            taken_s.append(CLOCK.monotonic_s() - began)
            assert list(answer.batches[0].attempts) == [attempt]
        assert min(taken_s) < 0.1


async def test_a_message_that_fails_for_good_is_found_in_the_dead_letter_topic(tmp_path: Path) -> None:
    """E-172, E-173: after the last attempt, or at once on request. The topic is created when it is needed."""
    async with open_cluster(tmp_path) as cluster:
        await cluster.create_topic("jobs")
        await send(cluster, "a", "b")
        stub = service(cluster)
        options = pop_pb2.PopOptions(attempts_max=2)
        parked = False
        for _ in range(6):
            request = pop_pb2.PopRequest(group="g", topic="jobs", wait_ms=2500, options=options, messages_max=1)
            answer = await stub.Pop(request)
            if not answer.batches:
                break
            nack = pop_pb2.NackRequest(
                receipts=receipts(answer), delay_ms=0, error="boom", client_id="w", options=options
            )
            if bodies(answer) == ["b"] and not parked:
                parked = nack.park = True
            await stub.Nack(nack)
        async with connect(cluster.address) as mq:
            letters = [one async for one in mq.admin.tail("%DLQ%g", from_beginning=True, follow=False)]
        told = {one.message.body: one.message.properties for one in letters}
        assert sorted(told) == [b"a", b"b"]
        assert (told[b"a"]["DLQ_REASON"], told[b"a"]["DLQ_ATTEMPTS"]) == ("attempts", "2")
        assert (told[b"b"]["DLQ_REASON"], told[b"b"]["DLQ_ATTEMPTS"]) == ("asked", "1")
        assert {one["DLQ_ERROR"] for one in told.values()} == {"boom"}


async def test_leases_and_acknowledgements_survive_a_restart_of_the_enode(tmp_path: Path) -> None:
    """Leased messages stay leased, acknowledged ones stay acknowledged."""
    async with open_cluster(tmp_path) as cluster:
        await cluster.create_topic("jobs", queues=1)
        await send(cluster, "a", "b", "c")
        stub = service(cluster)
        first = await stub.Pop(pop_pb2.PopRequest(group="g", topic="jobs", messages_max=1))
        await stub.Ack(pop_pb2.AckRequest(receipts=receipts(first)))
        second = await stub.Pop(pop_pb2.PopRequest(group="g", topic="jobs", messages_max=1))
        await cluster.close("enode-0")
        await cluster.open_enode("enode-0")
        third = pop_pb2.PopResponse()
        while not third.batches:
            with contextlib.suppress(grpc.aio.AioRpcError):  # the snode reconnects to the enode in a moment
                third = await stub.Pop(pop_pb2.PopRequest(group="g", topic="jobs", wait_ms=1000))
            await CLOCK.sleep(0.05)
        assert [bodies(one) for one in (first, second, third)] == [["a"], ["b"], ["c"]]
        assert not (await stub.Ack(pop_pb2.AckRequest(receipts=receipts(second) + receipts(third)))).stale


async def test_a_filter_leaves_out_what_the_group_does_not_want(tmp_path: Path) -> None:
    """The other messages count as done for the group."""
    async with open_cluster(tmp_path) as cluster:
        await cluster.create_topic("jobs", queues=1)
        await send(cluster, *[str(number) for number in range(60)], tags=("odd", "even", "even"))
        stub = service(cluster)
        got: list[str] = []
        while len(got) < 20:
            answer = await stub.Pop(
                pop_pb2.PopRequest(group="g", topic="jobs", messages_max=4, wait_ms=1000, tag_expression="odd")
            )
            assert len(bodies(answer)) <= 4
            got += bodies(answer)
            await stub.Ack(pop_pb2.AckRequest(receipts=[pop_pb2.LeaseReceipt(receipt_handle=one.receipt_handle)
                                                        for one in answer.batches]))  # fmt: skip
        assert sorted(map(int, got)) == list(range(0, 60, 3))
        assert not (await stub.Pop(pop_pb2.PopRequest(group="g", topic="jobs"))).batches


@pytest.mark.parametrize(
    ("request_", "field"),
    [
        (pop_pb2.PopRequest(group="", topic="jobs"), "group"),
        (pop_pb2.PopRequest(group="g", topic="nowhere"), "topic"),
        (pop_pb2.PopRequest(group="g", topic="jobs", messages_max=9999), "messages_max"),
        (pop_pb2.PopRequest(group="g", topic="jobs", invisible_ms=1), "invisible_ms"),
        (pop_pb2.AckRequest(), "receipts"),
        (pop_pb2.AckRequest(receipts=[pop_pb2.LeaseReceipt(receipt_handle="rubbish")]), "receipts.receipt_handle"),
    ],
)
async def test_a_wrong_request_is_refused_by_the_name_of_the_field(request_, field: str, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    """And no message changes its state."""
    async with open_cluster(tmp_path) as cluster:
        await cluster.create_topic("jobs")
        stub = service(cluster)
        method = stub.Pop if isinstance(request_, pop_pb2.PopRequest) else stub.Ack
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await method(request_)
        assert field in (caught.value.details() or "")


async def test_a_changed_handle_is_refused(tmp_path: Path) -> None:
    """A handle is sealed: one character less or different makes it invalid."""
    async with open_cluster(tmp_path) as cluster:
        await cluster.create_topic("jobs")
        await send(cluster, "a")
        stub = service(cluster)
        answer = await stub.Pop(pop_pb2.PopRequest(group="g", topic="jobs"))
        handle = answer.batches[0].receipt_handle
        for wrong in (handle[:-1], "B" + handle[1:], handle + "AAAA"):
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await stub.Ack(pop_pb2.AckRequest(receipts=[pop_pb2.LeaseReceipt(receipt_handle=wrong)]))
            assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_an_answer_holds_a_pop_of_the_largest_messages(tmp_path: Path) -> None:
    """The leased messages fit into the answer, whatever the sizes of messages and properties."""
    sizes = [(4 << 20) - 2_000, 4 << 20, 4 << 20]
    async with open_cluster(tmp_path) as cluster:
        await cluster.create_topic("jobs", queues=1)
        async with connect(cluster.address) as mq, mq.producer("jobs") as producer:
            for size_bytes in sizes:
                long = {} if size_bytes < 4 << 20 else {"long": "x" * 15_000}
                await producer.send(Message(hashlib.shake_128(b"").digest(size_bytes), properties=long))
            stub, got = service(cluster), list[int]()
            while len(got) < len(sizes):
                answer = await stub.Pop(pop_pb2.PopRequest(group="g", topic="jobs", messages_max=7, wait_ms=1000))
                assert answer.batches
                got += [len(body) for one in answer.batches for body in open_batch(batch_of(one.batch)).bodies()]
                await stub.Ack(pop_pb2.AckRequest(receipts=receipts(answer)))
        assert got == sizes
