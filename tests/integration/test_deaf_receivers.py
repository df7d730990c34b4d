"""Clients of ReceiveMessage that abort while frames wait for them: messages not taken go to other clients."""

import asyncio
import contextlib
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration

from apache.rocketmq.v2 import definition_pb2 as d
from apache.rocketmq.v2 import service_pb2 as s
from apache.rocketmq.v2.definition_pb2 import Code, Resource
from apache.rocketmq.v2.service_pb2_grpc import MessagingServiceStub
from ortoo.client import Message, connect
from ortoo.common.grpc.bulk_calls import batch_of
from ortoo.common.grpc.h2.call import H2Call
from ortoo.common.grpc.layers.call_memory import TRANSPORT_COPIES, CallMemory
from ortoo.common.grpc.layers.layer import ServedCall
from ortoo.common.grpc.tls import make_self_signed_certificate
from ortoo.common.process.memory_budget import RESIDENT_PERCENT
from ortoo.common.records.view import open_batch
from ortoo.v1 import pop_pb2
from ortoo.v1.consumer_pb2_grpc import ConsumerServiceStub
from ortoo.verification.servers.cluster import InProcessCluster, open_cluster
from tests.integration.deaf_client import DeafClient, deaf_client

PATH = "/apache.rocketmq.v2.MessagingService/ReceiveMessage"
METADATA = (("x-mq-client-id", "honest"), ("x-mq-language", "JAVA"))
DEAF = {"x-mq-client-id": "deaf", "x-mq-language": "JAVA"}
GROUP, TOPIC = Resource(name="g"), Resource(name="t")
COUNT = 32
Untaken = asyncio.Queue[H2Call | ServedCall]
SIZES = {"all frames wait together": 100, "more than may wait": 1_900, "each frame is waited for": 20_000}
"""Body size in bytes, by the state of the frames of an answer that is not read."""


def request(attempt_id: str | None = None, wait_s: int = 5) -> s.ReceiveMessageRequest:
    """A request for all messages, with a lease that lasts longer than the test unless they are released."""
    return s.ReceiveMessageRequest(
        group=GROUP,
        message_queue=d.MessageQueue(topic=TOPIC, id=-1),
        filter_expression=d.FilterExpression(type=d.TAG, expression="*"),
        batch_size=COUNT,
        invisible_duration=Duration(seconds=600),
        long_polling_timeout=Duration(seconds=wait_s),
        attempt_id=attempt_id,
    )


async def fill(cluster: InProcessCluster, size_bytes: int) -> list[bytes]:
    """Fill one queue with as many messages as one answer holds; return their bodies."""
    await cluster.create_topic("t", queues=1)
    return await more(cluster, size_bytes, 0)


async def more(cluster: InProcessCluster, size_bytes: int, number: int) -> list[bytes]:
    """Send further messages with other bodies."""
    bodies = [b"%06d" % (at + number * COUNT) + bytes(size_bytes) for at in range(COUNT)]
    async with connect(cluster.address) as mq, mq.producer("t") as producer:
        await (await producer.send_many([Message(body) for body in bodies]))
    return bodies


async def taken_and_done(stub: Any, count: int) -> list[bytes]:
    """Receive and acknowledge `count` messages; each acknowledgement succeeds."""
    bodies: list[bytes] = []
    while len(bodies) < count:
        frames = [one async for one in stub.ReceiveMessage(request(), metadata=METADATA, timeout=20)]
        assert frames[0].status.code in (Code.OK, Code.MESSAGE_NOT_FOUND, Code.TOO_MANY_REQUESTS), frames
        for frame in frames:
            if frame.HasField("message"):
                entry = s.AckMessageEntry(receipt_handle=frame.message.system_properties.receipt_handle)
                acks = s.AckMessageRequest(group=GROUP, topic=TOPIC, entries=[entry])
                assert (await stub.AckMessage(acks, metadata=METADATA)).status.code == Code.OK
                bodies.append(frame.message.body)
    return bodies


@pytest.fixture
def untaken(monkeypatch: pytest.MonkeyPatch, each_transport: str) -> Untaken:
    """Calls whose handler waits until the transport has taken their frames. With grpc.aio, also calls of others."""
    waiting: Untaken = asyncio.Queue()
    begun = set[ServedCall]()
    wait, answered = H2Call.wait_until_sent, CallMemory.on_response

    async def until_sent(self: H2Call) -> None:
        if self.unsent_bytes and self.headers.path == PATH:  # the enodes are served by the same transport
            waiting.put_nowait(self)
        await wait(self)

    def on_response(self: CallMemory, call: ServedCall, answer: bytes) -> bytes:
        if call.method.path == PATH and call not in begun:  # with grpc.aio, its handler waits with each frame
            begun.add(call)
            waiting.put_nowait(call)
        return answered(self, call, answer)

    if each_transport == "h2":
        monkeypatch.setattr(H2Call, "wait_until_sent", until_sent)
    else:
        monkeypatch.setattr(CallMemory, "on_response", on_response)
    return waiting


async def cut(client: DeafClient) -> None:
    client.drop()


async def reset(client: DeafClient) -> None:
    client.reset()


async def take_half_and_reset(client: DeafClient) -> None:
    client.open_window(1_500)
    await client.until_taken(1_000)
    client.reset()


async def half_close_and_cut(client: DeafClient) -> None:
    client.half_close()
    client.drop()


async def wait_for_the_deadline(client: DeafClient) -> None:
    await client.until_ended()


Ending = Callable[[DeafClient], Awaitable[None]]
ENDINGS: list[Ending] = [cut, reset, take_half_and_reset, half_close_and_cut, wait_for_the_deadline]


@pytest.mark.parametrize("size_bytes", SIZES.values(), ids=SIZES)
@pytest.mark.parametrize("end", ENDINGS)
async def test_what_was_not_taken_is_anothers_at_once(
    end: Ending, size_bytes: int, tmp_path: Path, untaken: Untaken
) -> None:
    """However the client aborts, no message is lost or counted as done, and the call leaves nothing behind."""
    async with asyncio.timeout(60), open_cluster(tmp_path) as cluster:
        bodies = await fill(cluster, size_bytes)
        late = end is wait_for_the_deadline
        headers = DEAF | ({"grpc-timeout": "4S"} if late else {})
        async with deaf_client(cluster.address) as client, grpc.aio.insecure_channel(cluster.address) as channel:
            client.call(PATH, request().SerializeToString(), headers=headers, half_close=end is not half_close_and_cut)
            call = await untaken.get()
            stub = MessagingServiceStub(channel)
            if not late:  # a slow machine would take the rest of the time
                nothing = [one async for one in stub.ReceiveMessage(request(wait_s=1), metadata=METADATA)]
                assert not any(frame.HasField("message") for frame in nothing), "the deaf client has them all"
            await end(client)
            assert sorted(await taken_and_done(stub, COUNT)) == bodies
            assert not isinstance(call, H2Call) or (call.is_caller_gone and not call.unsent_bytes)


async def test_what_was_not_taken_is_anothers_though_its_client_asked_for_more(
    tmp_path: Path, untaken: Untaken
) -> None:
    """A client requests from each enode separately; another request does not prove that it has the messages."""
    async with asyncio.timeout(60), open_cluster(tmp_path) as cluster:
        bodies = await fill(cluster, 100)
        async with deaf_client(cluster.address) as client, grpc.aio.insecure_channel(cluster.address) as channel:
            client.call(PATH, request("a").SerializeToString(), headers=DEAF)
            await untaken.get()
            stub = MessagingServiceStub(channel)
            asking = stub.ReceiveMessage(request("b", wait_s=1), metadata=tuple(DEAF.items()))
            assert not any(frame.HasField("message") for frame in [one async for one in asking])
            await cut(client)
            assert sorted(await taken_and_done(stub, COUNT)) == bodies


async def test_few_small_messages_are_not_taken_either(tmp_path: Path, untaken: Untaken) -> None:
    """Messages behind a closed window are not taken, however few bytes they are, and their lease is not renewed."""
    async with asyncio.timeout(60), open_cluster(tmp_path) as cluster:
        [body, *_] = await fill(cluster, 1)
        one = request()
        one.batch_size, one.auto_renew = 2, True
        async with deaf_client(cluster.address) as client, grpc.aio.insecure_channel(cluster.address) as channel:
            client.call(PATH, one.SerializeToString(), headers=DEAF)
            await untaken.get()
            client.reset()
            stub, got = MessagingServiceStub(channel), list[bytes]()
            while body not in got:
                frames = [frame async for frame in stub.ReceiveMessage(one, metadata=METADATA, timeout=20)]
                got += [frame.message.body for frame in frames if frame.HasField("message")]


async def test_who_takes_late_gets_everything(tmp_path: Path, untaken: Untaken) -> None:
    """A window that opens step by step lets the frames through, and the messages belong to that client."""
    async with asyncio.timeout(60), open_cluster(tmp_path) as cluster:
        await fill(cluster, 100)
        async with deaf_client(cluster.address) as client, grpc.aio.insecure_channel(cluster.address) as channel:
            client.call(PATH, request().SerializeToString(), headers=DEAF)
            await untaken.get()
            while 1 not in client.ended:
                taken_bytes = client.taken_bytes[1]
                client.open_window(700)
                await client.until_taken(taken_bytes + 1)
            assert client.taken_bytes[1] > COUNT * 100
            stub = MessagingServiceStub(channel)
            nothing = [one async for one in stub.ReceiveMessage(request(wait_s=1), metadata=METADATA)]
            assert not any(frame.HasField("message") for frame in nothing)


async def test_popped_messages_that_nobody_took_come_again_when_their_lease_is_over(tmp_path: Path) -> None:
    """The single answer of a native pop is lost with its connection."""
    async with asyncio.timeout(60), open_cluster(tmp_path) as cluster:
        bodies = await fill(cluster, 1_900)
        pop = pop_pb2.PopRequest(group="g", topic="t", messages_max=COUNT, invisible_ms=1_500, wait_ms=5_000)
        async with deaf_client(cluster.address, window_bytes=1_500) as client:
            client.call("/ortoo.v1.ConsumerService/Pop", pop.SerializeToString())
            await client.until_taken(1_500)
        async with grpc.aio.insecure_channel(cluster.address) as channel:
            got: list[bytes] = []
            pop.invisible_ms = 60_000
            while len(got) < COUNT:
                answer = await ConsumerServiceStub(channel).Pop(pop)
                got += [body for one in answer.batches for body in open_batch(batch_of(one.batch)).bodies()]
            assert sorted(got) == bodies


async def test_a_stop_does_not_wait_for_who_takes_nothing(tmp_path: Path, untaken: Untaken) -> None:
    """The snode stops when its grace expires, releases the messages, and the next snode delivers them."""
    async with asyncio.timeout(60), open_cluster(tmp_path) as cluster:
        bodies = await fill(cluster, 100)
        async with deaf_client(cluster.address) as client:
            client.call(PATH, request().SerializeToString(), headers=DEAF)
            await untaken.get()
            await cluster.close("snode-0")
        await cluster.open_snode("snode-0")
        async with grpc.aio.insecure_channel(cluster.address) as channel:
            assert sorted(await taken_and_done(MessagingServiceStub(channel), COUNT)) == bodies


async def test_tls_changes_nothing(tmp_path: Path, untaken: Untaken) -> None:
    """When a client leaves the TLS port during its frames, nothing of it stays either."""
    certificate, key = make_self_signed_certificate(("localhost",))
    (tmp_path / "c.pem").write_bytes(certificate)
    (tmp_path / "k.pem").write_bytes(key)
    chosen = {
        "tls_listen_address": "127.0.0.1:0",
        "tls_certificate_file": str(tmp_path / "c.pem"),
        "tls_key_file": str(tmp_path / "k.pem"),
    }
    trusting = ssl.create_default_context()
    trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
    async with asyncio.timeout(60), open_cluster(tmp_path, settings={"snode": chosen}) as cluster:
        bodies = await fill(cluster, 1_900)
        address = cluster.running["snode-0"].tls_address
        async with deaf_client(address, tls=trusting) as client, grpc.aio.insecure_channel(cluster.address) as channel:
            client.call(PATH, request().SerializeToString(), headers=DEAF)
            await untaken.get()
            client.open_window(1_500)
            await client.until_taken(1_000)
            client.drop()
            assert sorted(await taken_and_done(MessagingServiceStub(channel), COUNT)) == bodies


async def test_those_who_take_nothing_do_not_use_up_the_memory(tmp_path: Path, untaken: Untaken) -> None:
    """Memory held for them is counted, so some of them are ended when it is short; readers get their messages."""
    budget_bytes, deaf_count, size_bytes = 32 << 20, 8, 100_000
    settings = {"snode": {"memory_budget_bytes": budget_bytes}}
    async with asyncio.timeout(60), contextlib.AsyncExitStack() as stack:
        cluster = await stack.enter_async_context(open_cluster(tmp_path, settings=settings))
        bodies = await fill(cluster, size_bytes)
        for number in range(1, deaf_count):
            bodies += await more(cluster, size_bytes, number)
        assert sum(map(len, bodies)) > budget_bytes * 100 // RESIDENT_PERCENT
        deaf = [await stack.enter_async_context(deaf_client(cluster.address)) for _ in range(deaf_count)]
        for number, client in enumerate(deaf):
            headers = DEAF | {"x-mq-client-id": f"deaf-{number}"}
            client.call(PATH, request().SerializeToString(), headers=headers)
        for _ in range(budget_bytes * 100 // RESIDENT_PERCENT // (TRANSPORT_COPIES * COUNT * size_bytes)):
            await untaken.get()  # this number uses the memory up
        stub = MessagingServiceStub(await stack.enter_async_context(grpc.aio.insecure_channel(cluster.address)))
        got = await taken_and_done(stub, COUNT)
        while not any(1 in client.ended for client in deaf):
            got += await taken_and_done(stub, 1)
        assert len({*got} & {*bodies}) == len(got)
