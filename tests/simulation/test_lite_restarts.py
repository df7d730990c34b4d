"""Lite topics that are created, used and expire while name server, enode and snodes restart."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
from grpc import RpcError

from apache.rocketmq.v2.definition_pb2 import Code
from apache.rocketmq.v2.service_pb2_grpc import MessagingServiceStub
from ortoo.client import Client
from ortoo.common.errors import OrtooError
from ortoo.common.grpc.channels import Channels
from ortoo.common.process.background import Background
from ortoo.common.process.randomness import Randomness
from ortoo.testing.simulation.cluster.cluster import ClusterShape
from ortoo.testing.simulation.cluster.machine import Machine
from tests.integration.lite_client import COMPLETE, LiteClient
from tests.simulation.scripted_cluster import ScriptedCluster, play

SHAPE = ClusterShape(enodes=2, snodes=2)
TTL_MS = 120_000
NAMES = [f"l{number}" for number in range(12)]
DISTURBED_S = 120.0
REFUSALS = (OrtooError, RpcError, TimeoutError, AssertionError)
"""The errors of calls while a process is away. The client of the test asserts the codes of answers."""


@dataclass
class Workload:
    """A sender at one snode, and a client at each snode that subscribes to half of the lite topics."""

    stage: ScriptedCluster
    mq: Client
    clients: list[LiteClient]
    random: Randomness
    sent: dict[str, list[bytes]] = field(default_factory=dict)
    """The acknowledged bodies of each lite topic."""
    received: set[bytes] = field(default_factory=set)
    is_over: bool = False

    def names_of(self, number: int) -> list[str]:
        """The lite topics of a client."""
        return NAMES[number::2]

    async def send(self) -> None:
        """Send to lite topics, at either snode."""
        count = 0
        while not self.is_over:
            await self.stage.clock.sleep(0.2 + self.random.below(10) / 10)
            name, client = NAMES[self.random.below(len(NAMES))], self.clients[self.random.below(2)]
            count += 1
            body = f"{name}-{count}".encode()
            try:
                answer = await client.send((name, body))
            except REFUSALS:
                continue
            if answer.status.code == Code.OK:
                self.sent.setdefault(name, []).append(body)

    async def receive(self, number: int) -> None:
        """Subscribe, receive and acknowledge, as a client does that retries everything."""
        client, renewed_s = self.clients[number], -100.0
        while True:
            try:
                if self.stage.clock.monotonic_s() - renewed_s > 20.0:
                    assert await client.sync(COMPLETE, *self.names_of(number)) == Code.OK
                    renewed_s = self.stage.clock.monotonic_s()
                for message in await client.receive(wait_s=5.0):
                    self.received.add(message.body)
                    await client.ack(message)
            except REFUSALS:
                renewed_s = -100.0
                await self.stage.clock.sleep(1.0)

    def disturbances(self) -> Iterator[Machine]:
        """The machines to restart, in random order, without end."""
        machines = self.stage.cluster.machines
        while True:
            yield machines[self.random.below(len(machines))]

    async def disturb(self) -> None:
        """Restart machines, one after another, with pauses that sometimes are too short to recover."""
        began_s = self.stage.clock.monotonic_s()
        for machine in self.disturbances():
            if self.stage.clock.monotonic_s() - began_s > DISTURBED_S:
                return
            machine.kill()
            await self.stage.clock.sleep(0.1 + self.random.below(50) / 10)
            machine.start()
            await self.stage.clock.sleep(self.random.below(150) / 10)

    async def lite_topics(self) -> set[str]:
        """The lite topics in the directory."""
        return {one.name for one in await self.mq.admin.list_topics() if one.name.startswith("%LMQ%")}


@pytest.mark.parametrize("seed", range(1, 3))
def test_no_message_of_a_lite_topic_is_lost(seed: int) -> None:
    """Each acknowledged message is received, and without further messages all lite topics expire."""

    async def script(stage: ScriptedCluster) -> None:
        async with stage.connect("operator") as mq, Channels() as channels, Background("clients") as background:
            stubs = [MessagingServiceStub(channels.channel_to(address)) for address in stage.cluster.addresses]
            clients = [LiteClient(stub, f"c{number}") for number, stub in enumerate(stubs)]
            random = stage.world.random_streams.stream("lite")
            it = Workload(stage, mq, clients, random)
            await mq.admin.create_topic("t", message_type="lite", lite_ttl_ms=TTL_MS)
            background.spawn("send", it.send())
            for number in range(2):
                background.spawn("receive", it.receive(number))
            await it.disturb()
            it.is_over = True
            sent = {body for bodies in it.sent.values() for body in bodies}
            assert len(sent) > 20
            async with asyncio.timeout(300.0):
                while not sent <= it.received:
                    await stage.clock.sleep(1.0)
                while await it.lite_topics():
                    await stage.clock.sleep(5.0)
            # A send creates a lite topic again, and its subscriber at another snode gets the message.
            assert (await clients[1].send(("l0", b"again"))).status.code == Code.OK
            async with asyncio.timeout(60.0):
                while b"again" not in it.received:
                    await stage.clock.sleep(1.0)

    play(script, seed=seed, shape=SHAPE)
