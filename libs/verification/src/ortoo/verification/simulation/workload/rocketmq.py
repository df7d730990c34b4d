"""RocketMQ clients over their generated stubs: a producer, and simple consumers that acknowledge one by one."""

import base64

import grpc
from google.protobuf.duration_pb2 import Duration

from apache.rocketmq.v2 import definition_pb2 as words
from apache.rocketmq.v2 import service_pb2 as calls
from apache.rocketmq.v2.service_pb2_grpc import MessagingServiceStub
from ortoo.client import Client, Queue
from ortoo.common.grpc.channels import Channels
from ortoo.verification.simulation.oracle.leases import MARGIN_S
from ortoo.verification.simulation.oracle.received import NOWHERE, ObservedDelivery
from ortoo.verification.simulation.oracle.sent import TrackedMessage
from ortoo.verification.simulation.oracle.stored import compare_stored
from ortoo.verification.simulation.workload.application import Application
from ortoo.verification.simulation.workload.scenario import Scenario

INVISIBLE_S = 12
POLL_S = 5
TIMEOUT_S = 8.0
REQUEST_MAX = 4
FORGED = 0.1
"""The probability that a forged receipt precedes a good one."""
REFUSALS = range(40000, 50000)
"""Codes of invalid requests, which must not be stored. REQUEST_TIMEOUT is not among them."""


class RocketMqScenario(Scenario):
    """A producer and two consumers, each with its telemetry."""

    name = "rocketmq"
    group = "simple"

    def build(self) -> None:
        """One producer, two consumers."""

        async def produce(application: Application, _: Client) -> None:
            async with Channels() as channels:
                client = RocketClient(application, channels, self.name, self.group)
                while True:
                    await client.send()
                    await application.pause_for(self.rate_per_s)

        async def consume(application: Application, _: Client) -> None:
            async with Channels() as channels:
                client = RocketClient(application, channels, self.name, self.group)
                while True:
                    await client.consume()

        self.groups = {self.group: self.name}
        self.senders = [self.application("p0", produce)]
        self.consumers = [self.application(f"c{n}", consume) for n in range(2)]

    def unsettled(self) -> str:
        """Also messages that were delivered and not acknowledged."""
        return super().unsettled() or self.oracle.leases.unsettled(self.group)

    async def check(self, client: Client) -> None:
        """Compare the stored messages; the group has no lag."""
        await compare_stored(client, self.oracle, self.name)
        await self.check_lag(client, self.group)


class RocketClient:
    """One client: it changes to the next address when a snode does not answer."""

    def __init__(self, application: Application, channels: Channels, topic: str, group: str) -> None:
        """Act for `application`."""
        self._application = application
        self._oracle = application.oracle
        self._channels = channels
        self._topic = words.Resource(name=topic)
        self._group = words.Resource(name=group)
        self._at = 0
        self._metadata = (
            ("x-mq-client-id", application.incarnation),
            ("x-mq-language", "PYTHON"),
            ("x-mq-client-version", "5.0.0"),
        )

    async def send(self) -> None:
        """Send one message, or a few in one request."""
        topic, chance = self._topic.name, self._application.chance
        count = 1 + (chance.below(REQUEST_MAX) if chance.uniform(0.0, 1.0) < 0.3 else 0)
        sent = [self._application.next_message(topic)[0] for _ in range(count)]
        request = calls.SendMessageRequest(messages=[self._message(one) for one in sent])
        try:
            answer = await self._stub().SendMessage(request, metadata=self._metadata, timeout=TIMEOUT_S)
        except grpc.aio.AioRpcError as error:
            await self._failed(error)
            return
        now_s = self._oracle.now_s()
        for number, one in enumerate(sent):
            entry = answer.entries[number] if len(answer.entries) == count else calls.SendResultEntry()
            code = entry.status.code or answer.status.code
            if code == words.OK:
                self._oracle.sent.stored(one, now_s, None, entry.offset)
            elif code in REFUSALS and code != words.REQUEST_TIMEOUT:
                self._oracle.sent.refused(one, now_s)

    def _message(self, sent: TrackedMessage) -> words.Message:
        properties = words.SystemProperties(message_id=sent.key, message_type=words.NORMAL)
        return words.Message(topic=self._topic, system_properties=properties, body=sent.body)

    async def consume(self) -> None:
        """Send the settings, then receive until a call fails."""
        stub = self._stub()
        telemetry = stub.Telemetry(metadata=self._metadata)
        try:
            await telemetry.write(calls.TelemetryCommand(settings=self._settings()))
            await telemetry.read()
            while True:
                await self._receive(stub)
        except grpc.aio.AioRpcError as error:
            await self._failed(error)
        finally:
            telemetry.cancel()

    async def _receive(self, stub: MessagingServiceStub) -> None:
        request = calls.ReceiveMessageRequest(
            group=self._group,
            message_queue=words.MessageQueue(topic=self._topic, id=-1, accept_message_types=[words.NORMAL]),
            filter_expression=words.FilterExpression(type=words.TAG, expression="*"),
            batch_size=8,
            invisible_duration=Duration(seconds=INVISIBLE_S),
            long_polling_timeout=Duration(seconds=POLL_S),
        )
        taken: list[tuple[words.Message, ObservedDelivery]] = []
        async for part in stub.ReceiveMessage(request, metadata=self._metadata, timeout=POLL_S + TIMEOUT_S):
            if part.HasField("message"):
                taken += self._received(part.message)
            elif part.HasField("status") and part.status.code not in (words.OK, words.MESSAGE_NOT_FOUND):
                await self._application.clock.sleep(0.5)
        for message, delivery in taken:
            await self._settle(stub, message, delivery.sent, delivery.at_s)

    def _received(self, message: words.Message) -> list[tuple[words.Message, ObservedDelivery]]:
        system = message.system_properties
        queue = Queue(self._topic.name, NOWHERE, system.queue_id)
        delivery = self._oracle.received.delivered(
            self._group.name,
            self._application.incarnation,
            message.body,
            queue,
            system.queue_offset,
            system.delivery_attempt,
        )
        if delivery is None:
            return []
        self._oracle.leases.delivered(delivery, INVISIBLE_S * 1000)
        return [(message, delivery)]

    async def _settle(
        self, stub: MessagingServiceStub, message: words.Message, sent: TrackedMessage, delivered_at_s: float
    ) -> None:
        system, group, chance = message.system_properties, self._group.name, self._application.chance
        await self._application.clock.sleep(chance.uniform(0.0, 0.05))
        if chance.uniform(0.0, 1.0) < 0.08:
            self._oracle.leases.begin_release(group, sent)
            change = calls.ChangeInvisibleDurationRequest(
                group=self._group, topic=self._topic, receipt_handle=system.receipt_handle,
                invisible_duration=Duration(seconds=10), message_id=system.message_id,
            )  # fmt: skip
            await stub.ChangeInvisibleDuration(change, metadata=self._metadata, timeout=TIMEOUT_S)
            return
        entry = calls.AckMessageEntry(message_id=system.message_id, receipt_handle=system.receipt_handle)
        request = calls.AckMessageRequest(group=self._group, topic=self._topic, entries=[entry])
        if chance.uniform(0.0, 1.0) < FORGED:
            await self._forge(stub, request)
        self._oracle.leases.begin_ack(group, sent)
        answer = await stub.AckMessage(request, metadata=self._metadata, timeout=TIMEOUT_S)
        code = answer.entries[-1].status.code if answer.entries else answer.status.code
        if code == words.OK:
            self._oracle.leases.acked(group, sent)
        elif (
            self._oracle.is_undisturbed_since(delivered_at_s)
            and self._oracle.now_s() - delivered_at_s < INVISIBLE_S - MARGIN_S
        ):
            self._oracle.violations.add(
                "a bad request affects no other client", f"a good receipt of {sent.key} is refused: {code}"
            )

    async def _forge(self, stub: MessagingServiceStub, request: calls.AckMessageRequest) -> None:
        """Acknowledge with a forged seal, as a client could that knows all of the lease but the cluster's key.

        The forged receipt also goes into the real request. It settles no lease, and the good receipt beside it is not
        refused for it.
        """
        [good] = request.entries
        forged = calls.AckMessageEntry(message_id=good.message_id, receipt_handle=forged_receipt(good.receipt_handle))
        alone = calls.AckMessageRequest(group=self._group, topic=self._topic, entries=[forged])
        answer = await stub.AckMessage(alone, metadata=self._metadata, timeout=TIMEOUT_S)
        if answer.status.code == words.OK:
            self._oracle.violations.add("permissions", f"a forged receipt settles {good.message_id}")
        request.ClearField("entries")
        request.entries.extend((forged, good))

    def _settings(self) -> words.Settings:
        wanted = words.SubscriptionEntry(
            topic=self._topic, expression=words.FilterExpression(type=words.TAG, expression="*")
        )
        return words.Settings(
            client_type=words.SIMPLE_CONSUMER,
            subscription=words.Subscription(group=self._group, subscriptions=[wanted]),
        )

    def _stub(self) -> MessagingServiceStub:
        addresses = self._application.addresses
        return MessagingServiceStub(self._channels.channel_to(addresses[self._at % len(addresses)]))

    async def _failed(self, error: grpc.aio.AioRpcError) -> None:
        self._application.note(f"call failed {error.code().name}")
        self._at += 1
        await self._application.clock.sleep(0.5)


def forged_receipt(text: str) -> str:
    """The same lease with an invalid seal."""
    data = bytearray(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    data[-1] ^= 1
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
