"""AckMessage calls of one message, on both transports: how each of them ends. On h2 they wait without a call."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration

from apache.rocketmq.v2 import definition_pb2 as d
from apache.rocketmq.v2 import service_pb2 as s
from apache.rocketmq.v2.definition_pb2 import Code
from apache.rocketmq.v2.service_pb2_grpc import MessagingServiceStub
from ortoo.client import Message, connect
from ortoo.common.telemetry.call_metrics import CallMetrics
from ortoo.enode.pops.settlement import LeaseSettlement
from ortoo.verification.servers.cluster import InProcessCluster, open_cluster
from tests.integration.deaf_client import deaf_client

PATH = "/apache.rocketmq.v2.MessagingService/AckMessage"
METADATA = (("x-mq-client-id", "consumer"), ("x-mq-language", "JAVA"))
GROUP, TOPIC = d.Resource(name="g"), d.Resource(name="t")
COUNT = 8
WINDOW_BYTES = 65_535


def acks(*handles: str) -> s.AckMessageRequest:
    """A request to ack messages."""
    entries = [s.AckMessageEntry(message_id="m", receipt_handle=one) for one in handles]
    return s.AckMessageRequest(group=GROUP, topic=TOPIC, entries=entries)


@dataclass
class Acks:
    """A cluster with leased messages, whose enode answers acks when the test lets it."""

    cluster: InProcessCluster
    stub: Any
    handles: list[str]
    requests: list[Any]
    """The acks that have reached the enode."""
    go_on: asyncio.Event
    calls: list[CallMetrics]

    async def ack(self, *handles: str) -> list[Code.ValueType]:
        """The code of each entry."""
        answer = await self.stub.AckMessage(acks(*handles), metadata=METADATA)
        return [one.status.code for one in answer.entries]

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait for a condition."""
        while not condition():
            await self.cluster.clock.sleep(0.005)

    @property
    def in_flight(self) -> int:
        """The number of open unary calls."""
        return sum(one.unary_in_flight for one in self.calls)


@pytest.fixture
def opening(tmp_path: Path, each_transport: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A function that opens a cluster."""
    calls, requests, go_on = list[CallMetrics](), list[Any](), asyncio.Event()
    begin, finish = CallMetrics.__init__, LeaseSettlement._finish
    go_on.set()

    def begun(self: CallMetrics, *arguments: Any) -> None:
        begin(self, *arguments)
        calls.append(self)

    async def finished(self: LeaseSettlement, *arguments: Any) -> Any:
        requests.append(arguments)
        await go_on.wait()
        return await finish(self, *arguments)

    monkeypatch.setattr(CallMetrics, "__init__", begun)
    monkeypatch.setattr(LeaseSettlement, "_finish", finished)

    @asynccontextmanager
    async def opened() -> AsyncIterator[Acks]:
        async with (
            asyncio.timeout(120),
            open_cluster(tmp_path) as cluster,
            grpc.aio.insecure_channel(cluster.address) as channel,
        ):
            await cluster.create_topic("t", queues=1)
            async with connect(cluster.address) as mq, mq.producer("t") as producer:
                await (await producer.send_many([Message(b"%d" % number) for number in range(COUNT)]))
            stub = MessagingServiceStub(channel)
            request = s.ReceiveMessageRequest(
                group=GROUP,
                message_queue=d.MessageQueue(topic=TOPIC, id=-1),
                batch_size=COUNT,
                invisible_duration=Duration(seconds=600),
                long_polling_timeout=Duration(seconds=5),
            )
            frames = stub.ReceiveMessage(request, metadata=METADATA, timeout=30)
            handles = [one.message.system_properties.receipt_handle async for one in frames if one.HasField("message")]
            assert len(handles) == COUNT
            yield Acks(cluster, stub, handles, requests, go_on, calls)

    return opened


async def test_each_ack_has_its_own_result(opening: Any) -> None:
    """Repeated acks, acks of half of a lease, and wrong handles, at the same time."""
    async with opening() as it:
        forged, half = it.handles[0][:-3] + "AAA", it.handles[: COUNT // 2]
        given = [*half, *half, forged, "x"]
        found = await asyncio.gather(*map(it.ack, given), it.ack(half[0], forged))
        assert found[: 2 * len(half)] == [[Code.OK]] * len(half) * 2
        assert found[2 * len(half) :] == [[Code.INVALID_RECEIPT_HANDLE]] * 2 + [[Code.OK, Code.INVALID_RECEIPT_HANDLE]]
        assert await it.ack(*it.handles) == [Code.OK] * COUNT


@pytest.mark.parametrize("end", ["reset", "drop", "deadline"])
async def test_an_ack_is_applied_although_its_caller_has_left(opening: Any, end: str) -> None:
    """The call ends with its caller, and the enode's answer comes later."""
    async with opening() as it:
        await it.ack(it.handles[0])
        await it.until(lambda: not it.in_flight)
        it.requests.clear()
        it.go_on.clear()
        headers = dict(METADATA) | ({"grpc-timeout": "500m"} if end == "deadline" else {})
        async with deaf_client(it.cluster.address, window_bytes=WINDOW_BYTES) as client:
            for number, handle in enumerate(it.handles):
                client.call(PATH, acks(handle).SerializeToString(), stream=2 * number + 1, headers=headers)
            await it.until(lambda: bool(it.requests) and it.in_flight == COUNT)
            if end == "deadline":
                for number in range(COUNT):
                    await client.until_ended(2 * number + 1)
            elif end == "reset":
                for number in range(COUNT):
                    client.reset(2 * number + 1)
            else:
                client.drop()
            it.go_on.set()
            await it.until(lambda: not it.in_flight)
        assert await it.ack(*it.handles) == [Code.OK] * COUNT
