"""Clients that send invalid requests: each such call is refused, and no other client is affected."""

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Any

import grpc
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from apache.rocketmq.v2 import definition_pb2 as words
from apache.rocketmq.v2 import service_pb2
from apache.rocketmq.v2.service_pb2_grpc import MessagingServiceStub
from ortoo.client import Client
from ortoo.common.grpc.channels import Channels
from ortoo.v1 import admin_pb2, consumer_pb2, dead_letter_pb2, enode_pb2, namesrv_pb2, producer_pb2, session_pb2
from ortoo.verification.simulation.disturbances.nonsense import Nonsense
from ortoo.verification.simulation.workload.application import Application
from ortoo.verification.simulation.workload.scenario import Scenario

TIMEOUT_S = 6.0
STREAM_S = 2.0
FLOODS = 0.5
"""The probability that a client of snodes begins with a flood."""
FLOOD = 2_500
"""The number of settings sent to a snode whose answers are not read."""
FRONT = (
    admin_pb2.DESCRIPTOR.services_by_name["AdminService"],
    consumer_pb2.DESCRIPTOR.services_by_name["ConsumerService"],
    dead_letter_pb2.DESCRIPTOR.services_by_name["DeadLetterService"],
    producer_pb2.DESCRIPTOR.services_by_name["ProducerService"],
    session_pb2.DESCRIPTOR.services_by_name["SessionService"],
    service_pb2.DESCRIPTOR.services_by_name["MessagingService"],
)
BACK = (
    enode_pb2.DESCRIPTOR.services_by_name["EnodeService"],
    namesrv_pb2.DESCRIPTOR.services_by_name["NameService"],
)
SPARED = frozenset({"UpdateFlowControl", "SetStoredMode", "RemoveReplica"})
"""Calls that affect all clients or the replica set, which hostile clients therefore leave out."""
DEFECTS = (grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN)
BROKEN_STREAM = "Internal error from Core"
ROCKETMQ_DEFECTS = (50000, 50001)


class HostileScenario(Scenario):
    """Two clients that send invalid requests to a snode, and one that sends them to an enode and the name server."""

    name = "hostile"
    topics = ("fuzz-a", "fuzz-b")

    def build(self) -> None:
        """Create three clients."""

        async def front(application: Application, _: Client) -> None:
            async with Channels() as channels:
                channel = channels.channel_to(application.addresses[0])
                if application.chance.uniform(0.0, 1.0) < FLOODS:
                    await _flood(application, channel)
                await self._ask_for_ever(application, channel, [one for it in FRONT for one in it.methods])

        async def back(application: Application, _: Client) -> None:
            async with Channels() as channels:
                service = BACK[application.chance.below(len(BACK))]
                machines = self.cluster.stores if service is BACK[0] else self.cluster.name_servers
                await self._ask_for_ever(application, channels.channel_to(machines[0].address), list(service.methods))

        self.senders = [self.application("f0", front), self.application("f1", front), self.application("b0", back)]

    async def prepare(self, client: Client) -> None:
        """Create two topics for these clients only."""
        for topic in self.topics:
            await client.admin.ensure_topic(topic, queue_count=2)

    async def _ask_for_ever(
        self, application: Application, channel: grpc.aio.Channel, methods: Sequence[MethodDescriptor]
    ) -> None:
        names = [*self.topics, "fuzz-group", application.incarnation, "enode-0"]
        nonsense = Nonsense(application.chance, names)
        while True:
            method = methods[application.chance.below(len(methods))]
            if method.name not in SPARED:
                await self._ask(application, channel, method, nonsense)
            await application.pause_for(self.rate_per_s)

    async def _ask(
        self, application: Application, channel: grpc.aio.Channel, method: MethodDescriptor, nonsense: Nonsense
    ) -> None:
        path = f"/{method.containing_service.full_name}/{method.name}"
        asked = [nonsense.request(method.input_type) for _ in range(1 + application.chance.below(4))]
        metadata = (
            ("x-mq-client-id", application.incarnation),
            ("x-mq-language", "PYTHON"),
            ("x-mq-client-version", "5"),
        )
        write, read = type(asked[0]).SerializeToString, GetMessageClass(method.output_type).FromString
        try:
            if not (method.client_streaming or method.server_streaming):
                call = channel.unary_unary(path, write, read)
                answer = await call(asked[0], metadata=metadata, timeout=TIMEOUT_S)
                self._check_answer(path, answer, asked[0])
                return
            answers: Any
            if method.client_streaming:
                answers = channel.stream_stream(path, write, read)(metadata=metadata)
                await _send_all(answers, asked, application)
            else:
                answers = channel.unary_stream(path, write, read)(asked[0], metadata=metadata)
            try:
                async with asyncio.timeout(STREAM_S):
                    async for answer in answers:
                        self._check_answer(path, answer, asked[0])
            except TimeoutError:
                return
            finally:
                answers.cancel()
        except grpc.aio.AioRpcError as error:
            # The transport reports this itself when a stream ends during a write.
            is_own = error.details() == BROKEN_STREAM
            if error.code() in DEFECTS and not is_own:
                self.oracle.violations.add(
                    "a bad request affects no other client", f"{path} answers {error.code().name}: {error.details()}"
                )

    def _check_answer(self, path: str, answer: object, asked: object) -> None:
        code = getattr(getattr(answer, "status", None), "code", 0)
        if code in ROCKETMQ_DEFECTS:
            message = getattr(answer, "status").message  # noqa: B009  # of whatever type answers
            self.oracle.violations.add("a bad request affects no other client", f"{path} answers {code}: {message}")


async def _send_all(call: Any, asked: Sequence[Message], application: Application) -> None:
    """Write all of it, unless the server ends the call before."""
    for one in asked:
        with contextlib.suppress(asyncio.InvalidStateError, grpc.aio.AioRpcError):  # the reader gets the reason
            await call.write(one)
        await application.clock.sleep(0.05)
    with contextlib.suppress(asyncio.InvalidStateError, grpc.aio.AioRpcError):
        await call.done_writing()


async def _flood(application: Application, channel: grpc.aio.Channel) -> None:
    """Send settings repeatedly and read no answer: the snode ends that call, and nothing else."""
    metadata = (("x-mq-client-id", application.incarnation), ("x-mq-language", "PYTHON"), ("x-mq-client-version", "5"))
    topics = words.Publishing(topics=[words.Resource(name=HostileScenario.topics[0])])
    said = service_pb2.TelemetryCommand(settings=words.Settings(client_type=words.PRODUCER, publishing=topics))
    call = MessagingServiceStub(channel).Telemetry(metadata=metadata)
    try:
        with contextlib.suppress(asyncio.InvalidStateError, grpc.aio.AioRpcError, TimeoutError):
            async with asyncio.timeout(TIMEOUT_S):
                for _ in range(FLOOD):
                    await call.write(said)
                await application.clock.sleep(STREAM_S)
    finally:
        call.cancel()
