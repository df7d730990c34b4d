"""Calls that a snode on the transport h2 serves without a task, with access rules."""

import asyncio
from collections.abc import AsyncIterator
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
from ortoo.common.grpc.h2.methods import H2Method
from ortoo.common.grpc.transport import H2Transport, using_transport
from ortoo.verification.servers.cluster import InProcessCluster
from tests.integration.guarded_cluster import guarded, signed

TOPIC, GROUP = d.Resource(name="t"), d.Resource(name="g")


@dataclass
class Scene:
    """A guarded cluster, and the methods whose calls needed a task."""

    cluster: InProcessCluster
    stub: Any
    in_tasks: list[str]

    def metadata(self, user: str, secret: str = "s3cret") -> tuple[tuple[str, str], ...]:
        """The headers of a call that a user signs now."""
        return ("x-mq-client-id", f"client of {user}"), *signed(self.cluster, user, secret)

    async def send(self, user: str, secret: str = "s3cret", topic: str = "t") -> Code.ValueType:
        """Send a message; the code of the answer."""
        message = d.Message(
            topic=d.Resource(name=topic), system_properties=d.SystemProperties(message_id="m1"), body=b"x"
        )
        request = s.SendMessageRequest(messages=[message])
        answer = await self.stub.SendMessage(request, metadata=self.metadata(user, secret))
        return Code.ValueType(answer.status.code)

    async def receive(self, user: str) -> list[str]:
        """The handles of received messages."""
        request = s.ReceiveMessageRequest(
            group=GROUP,
            message_queue=d.MessageQueue(topic=TOPIC),
            batch_size=32,
            invisible_duration=Duration(seconds=60),
            long_polling_timeout=Duration(seconds=5),
        )
        frames = self.stub.ReceiveMessage(request, metadata=self.metadata(user), timeout=30)
        return [one.message.system_properties.receipt_handle async for one in frames if one.HasField("message")]

    async def ack(self, user: str, *handles: str) -> list[Code.ValueType]:
        """The code of each entry; that of the answer if it has none."""
        entries = [s.AckMessageEntry(message_id="m1", receipt_handle=one) for one in handles]
        request = s.AckMessageRequest(group=GROUP, topic=TOPIC, entries=entries)
        answer = await self.stub.AckMessage(request, metadata=self.metadata(user))
        return [one.status.code for one in answer.entries] or [answer.status.code]

    def tasks_of(self, method: str) -> int:
        """The number of calls of a method that needed a task."""
        return sum(one.endswith(f"/{method}") for one in self.in_tasks)


@pytest.fixture
async def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Scene]:
    """A snode whose users are not cached yet."""
    in_tasks: list[str] = []
    serve = H2Method._serve_in_task

    def serve_noted(self: H2Method, *given: Any) -> None:
        in_tasks.append(self.path)
        serve(self, *given)

    monkeypatch.setattr(H2Method, "_serve_in_task", serve_noted)
    with using_transport(H2Transport()):
        async with (
            asyncio.timeout(60),
            guarded(tmp_path) as cluster,
            grpc.aio.insecure_channel(cluster.address) as channel,
        ):
            yield Scene(cluster, MessagingServiceStub(channel), in_tasks)


async def test_a_signed_send_needs_no_task_when_the_secret_is_cached(scene: Scene) -> None:
    """The first call of a user waits for the name server."""
    assert [await scene.send("shop") for _ in range(3)] == [Code.OK] * 3
    assert scene.tasks_of("SendMessage") == 1


async def test_signatures_and_permissions_are_checked_without_a_task(scene: Scene) -> None:
    """A cached secret makes no other signature valid, and gives no permission."""
    assert await scene.send("shop") == Code.OK
    assert await scene.send("reader") == Code.FORBIDDEN
    known = scene.tasks_of("SendMessage")
    assert await scene.send("shop", secret="wrong") == Code.UNAUTHORIZED
    assert await scene.send("shop", topic="u") == Code.FORBIDDEN
    assert await scene.send("reader") == Code.FORBIDDEN
    assert scene.tasks_of("SendMessage") == known + 3  # errors are translated in a task


async def test_an_ack_of_one_message_needs_no_task(scene: Scene) -> None:
    """The second ack of the same handle is answered like the first; a forged handle has its own error."""
    assert await scene.send("shop") == Code.OK
    [handle] = await scene.receive("shop")
    assert await scene.ack("shop", handle) == [Code.OK]
    assert await scene.ack("shop", handle) == [Code.OK]
    assert scene.tasks_of("AckMessage") == 0
    assert await scene.ack("shop", handle, handle) == [Code.OK] * 2
    assert scene.tasks_of("AckMessage") == 1
