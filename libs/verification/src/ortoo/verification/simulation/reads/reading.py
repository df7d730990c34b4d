"""Reads during faults: each read of the enode is sent to every replica, and compared with what clients know."""

import asyncio
import contextlib

import grpc

from ortoo.client import Client, OrtooError, PopSettings, Producer, TransactionCheck, TransactionVerdict
from ortoo.common.grpc.channels import Channels
from ortoo.common.process.background import Background
from ortoo.common.process.randomness import Randomness
from ortoo.testing.simulation.cluster.roles import EnodeMachine
from ortoo.v1 import enode_locks_pb2 as locks_pb
from ortoo.v1 import enode_pb2 as pb
from ortoo.v1 import enode_pop_pb2 as pop_pb
from ortoo.v1.enode_pb2_grpc import EnodeServiceStub
from ortoo.verification.simulation.oracle.reads import ReadModel
from ortoo.verification.simulation.oracle.sent import SendOutcome
from ortoo.verification.simulation.oracle.stored import compare_stored
from ortoo.verification.simulation.reads.replica_reads import (
    GROUP,
    HALVES,
    MODE,
    READS,
    RECALLED,
    TIMEOUT_S,
    ReadSubjects,
    ReplicaReads,
    committed_in,
    delayed_message,
    done,
    end_of,
    generation_of,
    lease_of,
)
from ortoo.verification.simulation.workload.application import Application, Work
from ortoo.verification.simulation.workload.popping import INVISIBLE_MS, WAIT_MS, received
from ortoo.verification.simulation.workload.scenario import Scenario

READS_AT_ONCE = 2
"""The number of reads that one replica gets together."""
READ_PAUSE_S = 0.2
DELAY_MS = 3_600_000
"""No delayed message is due within a run."""
LEASE_MS = 500
SHARE_DELAYED, SHARE_RECALLED, SHARE_OPEN = 0.15, 0.3, 0.05


class ReadScenario(Scenario):
    """Writers of everything that reads show, and one reader for each replica."""

    name = "reading"

    def build(self) -> None:
        """Two writers, one worker that pops, one reader of each machine that keeps the log."""
        self.model = ReadModel(self.oracle.violations)
        self.subjects = ReadSubjects(has_retention=self.oracle.has_retention)
        self.groups = {self.subjects.pops_group: self.name}
        self.senders = [self.application("p0", self._produce), self.application("w0", self._write_state)]
        self.consumers = [self.application("pops", self._pop)]
        self.consumers += [self.application(f"r{one.name}", self._reader_of(one)) for one in self.cluster.stores]

    async def prepare(self, client: Client) -> None:
        """The topics, and their ids, by which an enode is read."""
        admin, subjects = client.admin, self.subjects
        await admin.ensure_topic(self.name, queue_count=subjects.queues)
        delayed, opened = f"{self.name}-delayed", f"{self.name}-open"
        known = {one.name for one in await admin.list_topics()}
        if delayed not in known:
            await admin.create_topic(delayed, queue_count=1, message_type="delay")
        if opened not in known:
            await admin.create_topic(opened, queue_count=1, message_type="transaction")
        subjects.topic_id = (await admin.describe_topic(self.name)).topic.topic_id
        subjects.delayed_topic_id = (await admin.describe_topic(delayed)).topic.topic_id
        subjects.open_topic_id = (await admin.describe_topic(opened)).topic.topic_id

    async def check(self, client: Client) -> None:
        """Compare the stored messages; the leader shows all that any answer showed."""
        await compare_stored(client, self.oracle, self.name)
        leader = next((one for one in self.cluster.stores if one.is_leading), None)
        if leader is None:
            raise OrtooError("no replica leads")
        async with Channels() as channels:
            reads = self._reads_of(leader, channels, self.chance)
            try:
                for read in READS.values():
                    await read(reads, self.model.begin(self.oracle.now_s()))
            except grpc.RpcError as error:
                raise OrtooError(f"{leader.name} does not answer: {error}") from error

    # writers

    async def _produce(self, application: Application, client: Client) -> None:
        async with (
            client.producer(self.name) as producer,
            client.producer(f"{self.name}-delayed") as delayed,
        ):
            while True:
                drawn = application.chance.uniform(0.0, 1.0)
                if drawn < SHARE_DELAYED:
                    await self._delay(application, client, delayed)
                elif drawn < SHARE_DELAYED + SHARE_OPEN:
                    await self._open(application, client)
                else:
                    await self._send(application, producer)
                await application.pause_for(self.rate_per_s)

    async def _send(self, application: Application, producer: Producer) -> None:
        sent = await application.send(producer, self.name, tag="read")
        if sent.outcome is SendOutcome.STORED and sent.queue is not None:
            self.subjects.keys[sent.key] = (sent.queue.queue_id, sent.offset)
            self.model.acknowledged(end_of(sent.queue.queue_id), sent.offset + 1)

    async def _delay(self, application: Application, client: Client, producer: Producer) -> None:
        _, message = application.next_message(
            f"{self.name}-delayed", deliver_at_ms=application.clock.now_ms() + DELAY_MS
        )
        with contextlib.suppress(OrtooError):
            receipt = await producer.send(message)
            number = receipt.offset
            self.subjects.delayed[number] = receipt.message_id
            self.model.acknowledged(delayed_message(number), 1)
            if application.chance.uniform(0.0, 1.0) < SHARE_RECALLED:
                self.subjects.begun_recalls[number] = None
                await client.recall(receipt.recall_handle)
                self.model.acknowledged(delayed_message(number), RECALLED)

    async def _open(self, application: Application, client: Client) -> None:
        """Begin a transaction that no client ends."""
        _, message = application.next_message(f"{self.name}-open")
        before = self.model.known(HALVES)
        with contextlib.suppress(OrtooError):
            async with client.transactional_producer(f"{self.name}-open", "readers", _undecided) as producer:
                await producer.begin(message, check_after_ms=DELAY_MS)
                self.model.acknowledged(HALVES, before + 1)

    async def _write_state(self, application: Application, _: Client) -> None:
        """Commit offsets and take locks at the replica that leads."""
        async with Channels() as channels:
            while True:
                await application.pause_for(self.rate_per_s)
                leader = next((one for one in self.cluster.stores if one.is_leading), None)
                queue = application.chance.below(self.subjects.queues)
                end = self.model.known(end_of(queue))
                if leader is None or not end:
                    continue
                stub = EnodeServiceStub(channels.channel_to(leader.address))
                drawn = application.chance.below(4)
                with contextlib.suppress(grpc.RpcError):
                    if drawn == 0:
                        await self._lock(application, stub, queue)
                    elif drawn == 1 and not self.subjects.has_retention:  # its messages would never be deleted
                        await self._lease(stub, queue, leader.name)
                    else:
                        at = application.chance.below(end)
                        await self._commit(stub, queue, end if self.subjects.has_retention else at + 1)

    async def _commit(self, stub: EnodeServiceStub, queue: int, offset: int) -> None:
        begun = self.subjects.begun_commits
        offset = max(offset, begun.get(queue, 0))
        begun[queue] = offset
        request = pb.CommitOffsetsRequest(
            topic_id=self.subjects.topic_id,
            group=self.subjects.commits_group,
            offsets=[pb.QueueOffset(queue_id=queue, offset=offset)],
        )
        await stub.CommitOffsets(request, timeout=TIMEOUT_S)
        self.model.acknowledged(committed_in(queue), offset)
        self.model.acknowledged(GROUP, 1)

    async def _lock(self, application: Application, stub: EnodeServiceStub, queue: int) -> None:
        """Take a lock for a new session, so that it gets a new generation."""
        wanted = locks_pb.LockRequest(
            group=self.subjects.locks_group,
            topic_id=self.subjects.topic_id,
            queue_id=queue,
            owner=self.name,
            session_id=f"{application.incarnation}/{self.oracle.now_s():.6f}",
        )
        answer = await stub.TakeLocks(locks_pb.TakeLocksRequest(requests=[wanted]), timeout=TIMEOUT_S)
        self.model.acknowledged(generation_of(queue), answer.results[0].generation)

    async def _lease(self, stub: EnodeServiceStub, queue: int, by: str) -> None:
        """Lease a message for a moment: its number is greater than those of all earlier leases."""
        start = self.model.begin(self.oracle.now_s())
        request = pop_pb.PopQueuesRequest(
            topic_id=self.subjects.topic_id,
            group=self.subjects.leases_group,
            queue_ids=[queue],
            messages_max=1,
            invisible_ms=LEASE_MS,
        )
        answer = await stub.PopQueues(request, timeout=TIMEOUT_S)
        for one in answer.batches:
            self.model.seen(start, lease_of(queue), one.lease_number - 1, by)
            self.model.acknowledged(lease_of(queue), one.lease_number)

    async def _pop(self, application: Application, client: Client) -> None:
        group = self.subjects.pops_group
        settings = PopSettings(invisible_ms=INVISIBLE_MS, wait_ms=WAIT_MS, messages_max=8)
        async with client.pop_consumer(group, self.name, "*", settings) as consumer:
            while True:
                taken = received(application, await consumer.pop(), group)
                if taken:
                    self.model.acknowledged(MODE, 1)
                for message, sent in taken:
                    self.oracle.leases.begin_ack(group, sent)
                    try:
                        await message.ack()
                    except OrtooError as error:
                        application.note(f"not acknowledged {type(error).__name__}")
                    else:
                        self.oracle.leases.acked(group, sent)
                        self.model.acknowledged(done(message.queue.queue_id, message.offset), 1)

    # readers

    def _reads_of(self, machine: EnodeMachine, channels: Channels, chance: Randomness) -> ReplicaReads:
        stub = EnodeServiceStub(channels.channel_to(machine.address))
        return ReplicaReads(machine.name, stub, self.model, self.subjects, chance)

    def _reader_of(self, machine: EnodeMachine) -> Work:
        kinds = list(READS.values())

        async def read(application: Application, _: Client) -> None:
            chance = application.chance
            async with Channels() as channels, Background("reads") as background:
                reads = self._reads_of(machine, channels, chance)

                async def one_read(number: int) -> None:
                    with contextlib.suppress(grpc.RpcError):
                        await kinds[number](reads, self.model.begin(self.oracle.now_s()))

                while True:
                    together = [
                        background.spawn("read", one_read(chance.below(len(kinds)))) for _ in range(READS_AT_ONCE)
                    ]
                    await asyncio.wait(together)
                    await application.pause_for(1 / READ_PAUSE_S)

        return read


async def _undecided(_: TransactionCheck) -> TransactionVerdict:
    return TransactionVerdict.UNKNOWN
