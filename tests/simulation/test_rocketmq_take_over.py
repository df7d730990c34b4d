"""RocketMQ's clients while the leader of an enode is killed every 20 s: calls wait for the next leader."""

import asyncio
import contextlib
from collections import Counter
from dataclasses import dataclass, field

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration

from apache.rocketmq.v2 import definition_pb2 as d
from apache.rocketmq.v2 import service_pb2 as s
from apache.rocketmq.v2.definition_pb2 import Code, Resource
from apache.rocketmq.v2.service_pb2_grpc import MessagingServiceStub
from ortoo.common.grpc.channels import Channels
from ortoo.common.process.background import Background
from tests.simulation.scripted_cluster import ScriptedCluster, play
from tests.simulation.test_take_over import THREE, leader, topic

KILL_INTERVAL_S = 20.0
POLL_S = 20
CALL_TIMEOUT_S = 3.0
"""The timeout of RocketMQ's clients for all calls but polls."""
GROUP, TOPIC = Resource(name="g"), Resource(name="t")
FINE = (Code.OK, Code.MESSAGE_NOT_FOUND)


@dataclass
class RocketClient:
    """A producer and simple consumer that records each failed call."""

    stub: MessagingServiceStub
    metadata: tuple[tuple[str, str], ...] = (("x-mq-client-id", "rocket-1"), ("x-mq-language", "JAVA"))
    failures: list[str] = field(default_factory=list)
    received: Counter[bytes] = field(default_factory=Counter)
    acked: set[bytes] = field(default_factory=set)
    sent: list[bytes] = field(default_factory=list)

    def check(self, what: str, status: d.Status) -> bool:
        """Whether a call has succeeded; a failure is recorded."""
        if status.code not in FINE:
            self.failures.append(f"{what}: {Code.Name(status.code)} {status.message}")
        return status.code in FINE

    async def send(self, body: bytes, kind: "d.MessageType.ValueType" = d.NORMAL) -> str:
        """Send one message; returns the id of its transaction."""
        system = d.SystemProperties(message_id=body.decode(), message_type=kind)
        request = s.SendMessageRequest(messages=[d.Message(topic=TOPIC, body=body, system_properties=system)])
        try:
            answer = await self.stub.SendMessage(request, metadata=self.metadata, timeout=CALL_TIMEOUT_S)
        except grpc.aio.AioRpcError as error:
            self.failures.append(f"send: {error.code().name} {error.details()}")
            return ""
        if not self.check("send", answer.entries[0].status if answer.entries else answer.status):
            return ""
        self.sent.append(body)
        return answer.entries[0].transaction_id

    async def end_transaction(self, body: bytes, transaction_id: str) -> None:
        """Commit the transaction of a message."""
        request = s.EndTransactionRequest(
            topic=TOPIC, message_id=body.decode(), transaction_id=transaction_id, resolution=d.COMMIT
        )
        try:
            answer = await self.stub.EndTransaction(request, metadata=self.metadata, timeout=CALL_TIMEOUT_S)
        except grpc.aio.AioRpcError as error:
            self.failures.append(f"commit: {error.code().name} {error.details()}")
        else:
            self.check("commit", answer.status)

    async def receive(self) -> list[d.Message]:
        """One poll."""
        request = s.ReceiveMessageRequest(
            group=GROUP,
            message_queue=d.MessageQueue(topic=TOPIC, id=-1),
            filter_expression=d.FilterExpression(type=d.TAG, expression="*"),
            batch_size=16,
            invisible_duration=Duration(seconds=15),
            long_polling_timeout=Duration(seconds=POLL_S),
        )
        call = self.stub.ReceiveMessage(request, metadata=self.metadata, timeout=POLL_S + CALL_TIMEOUT_S)
        try:
            frames = [frame async for frame in call]
        except grpc.aio.AioRpcError as error:
            self.failures.append(f"receive: {error.code().name} {error.details()}")
            return []
        self.check("receive", frames[0].status)
        return [frame.message for frame in frames if frame.HasField("message")]

    async def settle(self, message: d.Message) -> None:
        """Extend the invisible time of a message, and acknowledge it."""
        handle = message.system_properties.receipt_handle
        change = s.ChangeInvisibleDurationRequest(
            group=GROUP, topic=TOPIC, receipt_handle=handle, invisible_duration=Duration(seconds=20)
        )
        entry = s.AckMessageEntry(receipt_handle=handle)
        ack = s.AckMessageRequest(group=GROUP, topic=TOPIC, entries=[entry])
        try:
            changed = await self.stub.ChangeInvisibleDuration(change, metadata=self.metadata, timeout=CALL_TIMEOUT_S)
            # A leader that is killed right after a poll may take its lease with it; the message is then redelivered.
            is_superseded = changed.status.code == Code.INVALID_RECEIPT_HANDLE and self.received[message.body] > 1
            if not is_superseded:
                self.check("change", changed.status)
            acked = await self.stub.AckMessage(ack, metadata=self.metadata, timeout=CALL_TIMEOUT_S)
        except grpc.aio.AioRpcError as error:
            self.failures.append(f"settle: {error.code().name} {error.details()}")
        else:
            if self.check("ack", acked.entries[0].status if acked.entries else acked.status):
                self.acked.add(message.body)

    async def consume(self) -> None:
        """Receive and acknowledge, without end."""
        while True:
            for message in await self.receive():
                self.received[message.body] += 1
                await self.settle(message)


@pytest.mark.parametrize("seed", range(2))
def test_no_call_fails_while_leaders_are_killed(seed: int) -> None:
    """Sends, transactions, polls, changes and acks wait for the next leader within their own deadlines."""

    async def script(stage: ScriptedCluster) -> None:
        async with stage.connect("operator") as mq, Channels() as channels, Background("rocket") as background:
            await topic(stage, mq)
            client = RocketClient(MessagingServiceStub(channels.channel_to(stage.cluster.addresses[0])))
            for number in range(3):
                background.spawn(f"consumer {number}", client.consume())

            async def send(number: int) -> None:
                body = b"m%d" % number
                transaction_id = await client.send(body, d.TRANSACTION if number % 5 == 0 else d.NORMAL)
                if number % 5 == 0 and transaction_id:
                    await client.end_transaction(body, transaction_id)

            async def keep_sending() -> None:
                for number in range(10_000):
                    background.spawn("send", send(number))
                    await stage.clock.sleep(0.1)

            sending = background.spawn("sender", keep_sending())
            for _ in range(4):
                await stage.clock.sleep(KILL_INTERVAL_S / 2)
                killed = await leader(stage)
                killed.kill()
                await stage.clock.sleep(KILL_INTERVAL_S / 2)
                killed.start()
            sending.cancel()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(60):
                    while not client.acked >= set(client.sent):
                        await stage.clock.sleep(1.0)
            assert Counter(client.failures) == {}
            assert set(client.sent) - client.acked == set()

    play(script, shape=THREE, seed=seed + 1)


@pytest.mark.parametrize("direct_pops_max", [0, 100])
def test_polls_that_begin_without_a_leader_wait_for_the_next_one(
    monkeypatch: pytest.MonkeyPatch, direct_pops_max: int
) -> None:
    """Also if they share their waits."""
    monkeypatch.setattr("ortoo.snode.pop.processor.DIRECT_POPS_MAX", direct_pops_max)

    async def script(stage: ScriptedCluster) -> None:
        async with stage.connect("operator") as mq, Channels() as channels, Background("rocket") as background:
            await topic(stage, mq)
            client = RocketClient(MessagingServiceStub(channels.channel_to(stage.cluster.addresses[0])))
            await client.send(b"before")
            for message in await client.receive():
                await client.settle(message)
            (await leader(stage)).kill()
            polls = []
            for _ in range(8):
                polls.append(background.start_future("poll", client.receive()))
                await stage.clock.sleep(0.2)
            for number in range(8):
                await client.send(b"%d" % number)
            found = [message.body for poll in polls for message in await poll]
            assert (client.failures, len(set(found))) == ([], 8)

    play(script, shape=THREE)
