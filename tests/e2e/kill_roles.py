"""Kill each of the three roles at random, without warning, while messages flow; then audit all messages.

    python -m tests.e2e.kill_roles --seed 7 --kills 20 --enodes 2

Prints one line for each kill and a summary; the exit code is 1 when a guarantee was broken. The same seed makes the
same choices, but their effects differ from run to run.
"""

import argparse
import asyncio
import contextlib
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from ortoo.client import ConsumerSettings, ProducerSettings, SendFuture, connect
from ortoo.common.errors import OrtooError
from ortoo.common.grpc.channels import Channels
from ortoo.common.logs import logger as logs
from ortoo.common.process.background import Background
from ortoo.common.process.clock import SystemClock
from ortoo.common.process.randomness import Randomness
from ortoo.common.records.sealed_batch import SealedBatch
from ortoo.common.records.view import open_batch
from ortoo.v1 import admin_pb2, admin_pb2_grpc, consumer_pb2, consumer_pb2_grpc, namesrv_pb2, topic_pb2
from ortoo.verification.servers import command
from ortoo.verification.servers.processes import RoleProcess, process_cluster
from tests.e2e.drill import run_drill
from tests.e2e.ledger import Ledger, Place

TOPIC, GROUP = "kills", "auditors"
QUEUES = 4
PRODUCERS, CONSUMERS = 2, 2
CHUNK_MESSAGES = 20
PROGRESS_MESSAGES = 300
"""Approximate number of messages acknowledged between two kills, which also proves recovery from each kill."""
PATIENCE_S = 60.0

Say = Callable[[str], object]


class KillRun:
    """One run against one cluster of processes."""

    def __init__(
        self, address: str, victims: Sequence[Sequence[RoleProcess]], *, enodes: int, randomness: Randomness, say: Say
    ) -> None:
        """Work through the snode at `address`; `victims` are the processes to kill, grouped by role."""
        self.ledger = Ledger()
        self.kills: list[str] = []
        self._address = address
        self._victims = victims
        self._enodes = enodes
        self._randomness = randomness
        self._say = say
        self._clock = SystemClock()
        self._stop_sending = asyncio.Event()
        self._progress = asyncio.Condition()

    async def run(self, kills_of_each_role: int) -> Ledger:
        """Produce, consume, kill, wait for the rest, audit."""
        async with Channels() as channels:
            admin = admin_pb2_grpc.AdminServiceStub(channels.channel_to(self._address))
            await admin.CreateTopic(namesrv_pb2.CreateTopicRequest(name=TOPIC, read_queue_count=QUEUES))
            async with Background("run") as background:
                for number in range(CONSUMERS):
                    background.spawn(f"consumer {number}", self._consume())
                producers = [background.spawn(f"producer {n}", self._produce(n)) for n in range(PRODUCERS)]
                await self._until(lambda: len(self.ledger.acknowledged) > PROGRESS_MESSAGES, "the first messages")
                for roles in self._order(kills_of_each_role):
                    await self._kill_and_restart(roles, admin)
                self._stop_sending.set()
                async with asyncio.timeout(PATIENCE_S):
                    await asyncio.gather(*producers)
                with contextlib.suppress(AssertionError):  # the audit names the missing messages
                    await self._until(lambda: self.ledger.all_delivered, "the last delivery")
                self.ledger.offsets_are(await self._committed(admin))
            self.ledger.audit(await self._stored(channels))
        return self.ledger

    def _order(self, kills_of_each_role: int) -> list[Sequence[RoleProcess]]:
        """Each role the given number of times, shuffled, with a random enode or snode. Finally all at once."""
        kinds = [several for several in self._victims for _ in range(kills_of_each_role)]
        order: list[Sequence[RoleProcess]] = []
        while kinds:
            several = kinds.pop(self._randomness.below(len(kinds)))
            order.append([several[self._randomness.below(len(several))]])
        return [*order, [role for several in self._victims for role in several]]

    async def _kill_and_restart(self, roles: Sequence[RoleProcess], admin: admin_pb2_grpc.AdminServiceStub) -> None:
        names = ", ".join(role.folder.name for role in roles)
        with contextlib.suppress(Exception):  # a recovering cluster may not answer; then the old offsets stay
            self.ledger.offsets_are(await self._committed(admin))
        await self._clock.sleep(self._randomness.uniform(0, 0.1))
        for role in roles:
            await role.kill()
        self.kills.append(names)
        await self._clock.sleep(self._randomness.uniform(0, 0.3))
        for role in roles:
            await role.start()
        self._say(f"{len(self.kills):3}  killed {names}; {self.ledger.summary()}")
        wanted = len(self.ledger.acknowledged) + 1 + self._randomness.below(2 * PROGRESS_MESSAGES)
        delivered = len(self.ledger.deliveries) + 1
        await self._until(
            lambda: len(self.ledger.acknowledged) >= wanted and len(self.ledger.deliveries) >= delivered,
            f"messages to flow again after {names} was killed",
        )

    async def _produce(self, number: int) -> None:
        count = 0
        settings = ProducerSettings(linger_ms=1)
        async with connect(self._address) as mq, mq.producer(TOPIC, settings) as producer:
            while not self._stop_sending.is_set():
                count += CHUNK_MESSAGES
                numbers = range(count - CHUNK_MESSAGES, count)
                bodies = [b"producer %d message %07d " % (number, n) + b"." * 200 for n in numbers]
                self.ledger.sent += len(bodies)
                for body, sending in zip(bodies, await producer.send_many(bodies), strict=True):
                    await self._settle(body, sending)
                await self._tell()

    async def _settle(self, body: bytes, sending: SendFuture) -> None:
        try:
            receipt = await sending
        except OrtooError as error:
            self.ledger.unknown.add(body)
            self._say(f"     unknown outcome: {error}")
        else:
            self.ledger.stored_at(body, (receipt.queue.enode, receipt.queue.queue_id), receipt.offset)

    async def _consume(self) -> None:
        settings = ConsumerSettings(from_beginning=True, ack_interval_ms=20, unacknowledged_messages_max=500)
        async with connect(self._address) as mq, mq.consumer(GROUP, TOPIC, settings) as consumer:
            async for batch in consumer.batches():
                place = (batch.queue.enode, batch.queue.queue_id)
                for offset, body in zip(batch.offsets, batch.bodies(), strict=True):
                    self.ledger.received(place, offset, body)
                batch.ack()
                await self._tell()

    async def _tell(self) -> None:
        async with self._progress:
            self._progress.notify_all()

    async def _until(self, reached: Callable[[], bool], what: str) -> None:
        try:
            async with asyncio.timeout(PATIENCE_S), self._progress:
                await self._progress.wait_for(reached)
        except TimeoutError:
            raise AssertionError(f"waited {PATIENCE_S:.0f} s for {what}: {self.ledger.summary()}") from None

    async def _committed(self, admin: admin_pb2_grpc.AdminServiceStub) -> dict[Place, int]:
        request = admin_pb2.DescribeLagRequest(group=GROUP, topic=TOPIC)
        lag = await admin.DescribeLag(request, timeout=5)
        return {(q.queue.enode, q.queue.queue_id): q.committed_offset for q in lag.queues if q.committed_offset >= 0}

    async def _stored(self, channels: Channels) -> dict[Place, list[tuple[int, bytes]]]:
        """Everything in the topic."""
        stub = consumer_pb2_grpc.ConsumerServiceStub(channels.channel_to(self._address))
        stored = {}
        for number in range(self._enodes):
            for queue_id in range(QUEUES):
                queue = topic_pb2.Queue(topic=TOPIC, enode=f"enode-{number}", queue_id=queue_id)
                messages: list[tuple[int, bytes]] = []
                async for part in stub.Fetch(consumer_pb2.FetchRequest(queue=queue)):
                    assert not part.HasField("failure"), part.failure
                    batch = part.batch
                    sealed = SealedBatch(batch.records, batch.records_crc32c, batch.count, batch.body_inflated_bytes)
                    messages += enumerate(open_batch(sealed).bodies(), part.first_offset)
                stored[queue.enode, queue_id] = messages
        return stored


async def kill_roles(folder: Path, *, seed: int, kills: int, enodes: int = 1, say: Say = lambda text: None) -> Ledger:
    """Run it in `folder`; the ledger's `faults` are the broken guarantees."""
    async with process_cluster(folder, enodes=enodes) as cluster:
        victims = ([cluster.namesrv], cluster.enodes, cluster.snodes)
        run = KillRun(cluster.address, victims, enodes=enodes, randomness=Randomness(seed), say=say)
        ledger = await run.run(kills)
        for role in cluster.roles:
            if await role.stop() != 0:
                ledger.faults.append(f"{role.folder.name} did not stop cleanly")
        return ledger


async def kill_dev(folder: Path, *, seed: int, kills: int, say: Say = lambda text: None) -> Ledger:
    """The same with `ortoo dev`, where all roles die together and snode and enode share a process."""
    async with command.dev_process(folder / "dev") as dev:
        ledger = await KillRun(dev.address, [[dev]], enodes=1, randomness=Randomness(seed), say=say).run(kills)
        if await dev.stop() != 0:
            ledger.faults.append("ortoo dev did not stop cleanly")
        return ledger


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1, help="makes the choices")
    parser.add_argument("--kills", type=int, default=20, help="number of kills of each role")
    parser.add_argument("--enodes", type=int, default=2, help="number of enodes")
    parser.add_argument("--folder", type=Path, help="keep stores and logs here")
    arguments = parser.parse_args()
    logs.configure(level="error")
    with tempfile.TemporaryDirectory(prefix="ortoo-kills-") as temporary:
        folder = arguments.folder or Path(temporary)
        run = kill_roles(
            folder,
            seed=arguments.seed,
            kills=arguments.kills,
            enodes=arguments.enodes,
            say=lambda text: sys.stdout.write(f"{text}\n"),
        )
        ledger = run_drill(run)
    sys.stdout.write("\n".join([*ledger.faults[:20], ledger.summary(), ""]))
    return 1 if ledger.faults else 0


if __name__ == "__main__":
    sys.exit(main())
