"""Operators: they create, delete and recreate topics, move groups back, add queues, and read the state."""

from functools import partial

import grpc

from ortoo.client import Client, NotFound
from ortoo.common.grpc.channels import Channels
from ortoo.keda import externalscaler_pb2 as scaler_pb
from ortoo.verification.simulation.oracle.sent import TrackedMessage, keys
from ortoo.verification.simulation.oracle.stored import StoredTopicContents, compare_stored
from ortoo.verification.simulation.workload.application import Application
from ortoo.verification.simulation.workload.pushing import push_member
from ortoo.verification.simulation.workload.scenario import Scenario

ACTS_PER_S = 0.7
QUEUES_FIRST, QUEUES_MAX = 2, 5
SCALER_TIMEOUT_S = 6.0


class OperatorScenario(Scenario):
    """A producer, a group that is moved under load, and an operator that also creates and deletes topics of its own."""

    name = "operating"
    group = "push-operated"

    def build(self) -> None:
        """One producer, two group members, one operator."""
        self._queues = QUEUES_FIRST
        self._made = 0

        async def produce(application: Application, client: Client) -> None:
            async with client.producer(self.name) as producer:
                while True:
                    await application.send_some(producer, self.name)
                    await application.pause_for(self.rate_per_s / 2)

        async def consume(application: Application, client: Client) -> None:
            await push_member(application, client, self.group, self.name)

        async def operate(application: Application, client: Client) -> None:
            acts = (self._look, self._move_back, self._remake, self._widen, self._put_group, self._scale)
            while True:
                await acts[application.chance.below(len(acts))](application, client)
                await application.pause_for(ACTS_PER_S)

        self.groups = {self.group: self.name}
        self.senders = [self.application("p0", produce), self.application("operator", operate)]
        self.consumers = [self.application(f"c{n}", consume) for n in range(2)]

    async def check(self, client: Client) -> None:
        """Compare the stored messages."""
        await compare_stored(client, self.oracle, self.name)

    async def _look(self, application: Application, client: Client) -> None:
        """Read everything; existing objects must be listed."""
        await client.admin.describe_topic(self.name)  # an snode that does not have the topic yet asks for it
        topics = [one.name for one in await client.admin.list_topics()]
        if self.name not in topics:
            self.oracle.violations.add("operators see what is there", f"{self.name} is not among {topics}")
        await client.admin.describe_cluster()
        await client.admin.list_groups()
        try:
            await client.admin.groups.describe(self.group)
            asked_at_s, moves = self.oracle.now_s(), self.oracle.offsets.moves(self.group)
            lag = await client.admin.describe_lag(self.group, self.name)
            if moves == self.oracle.offsets.moves(self.group):
                for one in lag.queues:
                    self.oracle.offsets.read(self.group, one.queue, one.committed_offset, asked_at_s)
        except NotFound:
            return  # no message was consumed yet

    async def _move_back(self, application: Application, client: Client) -> None:
        """Move the group back to the beginning of all queues: its members receive everything again."""
        self.oracle.offsets.moved(self.group)
        try:
            await client.admin.groups.reset_offsets(self.group, self.name, time_ms=0)
        except NotFound:
            return  # no message was consumed yet
        finally:
            self.oracle.offsets.moved(self.group)

    async def _remake(self, application: Application, client: Client) -> None:
        """Create a topic, send to it, delete it and create it again: it must be empty."""
        self._made += 1
        topic = f"operated-{self._made % 3}"
        await _gone(client, topic)
        await client.admin.ensure_topic(topic, queue_count=1 + application.chance.below(3))
        before = [await self._send_one(application, client, topic) for _ in range(2)]
        self.oracle.sent.forget_topic(topic)
        await _gone(client, topic)
        await client.admin.ensure_topic(topic)
        stored = StoredTopicContents(topic)
        await stored.read(client, self.oracle)
        bodies = set(stored.places.values())
        if risen := [one for one in before if one.body in bodies]:
            self.oracle.violations.add("a deleted topic stays deleted", f"{keys(risen)} is in the new {topic}")
        await _gone(client, topic)

    async def _send_one(self, application: Application, client: Client, topic: str) -> TrackedMessage:
        async with client.producer(topic) as producer:
            return await application.send(producer, topic)

    async def _widen(self, _: Application, client: Client) -> None:
        """Give the topic one more queue."""
        if self._queues < QUEUES_MAX:
            self._queues += 1
            await client.admin.update_topic(self.name, read_queue_count=self._queues, write_queue_count=self._queues)

    async def _scale(self, application: Application, _: Client) -> None:
        """Ask as an autoscaler does: while messages wait the answer must be active, or that it is unknown."""
        before = {one.key for one in self._waiting()}
        about = scaler_pb.ScaledObjectRef(scalerMetadata={"group": self.group, "topic": self.name})
        async with Channels() as channels:
            is_active = channels.channel_to(application.addresses[0]).unary_unary(
                "/externalscaler.ExternalScaler/IsActive",
                # A map's order is that of memory addresses, unless deterministic.
                request_serializer=partial(scaler_pb.ScaledObjectRef.SerializeToString, deterministic=True),
                response_deserializer=scaler_pb.IsActiveResponse.FromString,
            )
            try:
                answer = await is_active(about, timeout=SCALER_TIMEOUT_S)
            except grpc.aio.AioRpcError:
                return
        waiting = [one for one in self._waiting() if one.key in before]
        if waiting and not answer.result and not self.oracle.damaged:
            self.oracle.violations.add("an autoscaler scales to zero", f"{keys(waiting)} waits for {self.group}")

    def _waiting(self) -> list[TrackedMessage]:
        """The messages that the group did not receive yet, in queues that every snode has had from the beginning."""
        missing = self.oracle.received.missing(self.group, self.name)
        return [one for one in missing if one.queue is not None and one.queue.queue_id < QUEUES_FIRST]

    async def _put_group(self, application: Application, client: Client) -> None:
        """Change the settings of a group."""
        await client.admin.put_group(self.group, slow_consumer_grace_ms=30_000 + application.chance.below(1000))


async def _gone(client: Client, topic: str) -> None:
    try:
        await client.admin.delete_topic(topic)
    except NotFound:
        return
