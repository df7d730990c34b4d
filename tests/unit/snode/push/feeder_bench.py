"""One queue of a push session between a scripted enode and a client with controlled credit."""

import asyncio
import contextlib
import dataclasses
from collections import deque
from collections.abc import AsyncIterator, Iterable
from typing import Any

from ortoo.common.errors import DataLoss, OrtooError
from ortoo.common.process.memory_budget import MemoryShare
from ortoo.common.records.batch import encode
from ortoo.common.records.message import Message
from ortoo.common.records.sealed_batch import StoredBatch
from ortoo.snode.cluster.routes import Queue
from ortoo.snode.enodes.link import FetchBatchesRequest, FetchedBatches, Interruption, LockRequest, QueueRange
from ortoo.snode.pull.offsets import SessionStart, StartFrom
from ortoo.snode.push.feeder import Feeder
from ortoo.snode.push.flow import QueueCursor
from ortoo.snode.push.outbox import Delivery
from ortoo.snode.push.queue_starts import QueueStarts
from tests.unit.snode.fake_enode import FakeEnode
from tests.unit.snode.push.push_bench import Bench, bench

QUEUE = Queue("t", "e", 2)
BYTES_MAX = 700_000
RETRY = Queue("%RETRY%g", "e", 2)
LOCK = LockRequest("g", 77, 2, "c", "session")


class Script(FakeEnode):
    """An enode that answers the reads of one queue from a list, and then no longer."""

    def __init__(self) -> None:
        super().__init__()
        self.answers: deque[FetchedBatches | OrtooError] = deque()
        self.asked: list[FetchBatchesRequest] = []
        self.asked_at_s: list[float] = []
        self.asked_bytes: list[int] = []
        """The memory drawn at each request."""
        self.share: MemoryShare
        self.ranges = [QueueRange(1, 100, 200), QueueRange(2, 3, 7)]

    async def fetch(self, wish: FetchBatchesRequest) -> FetchedBatches:
        """The next answer."""
        self.asked.append(wish)
        self.asked_at_s.append(asyncio.get_running_loop().time())
        self.asked_bytes.append(self.share.reserved_bytes)
        if not self.answers:
            await asyncio.get_running_loop().create_future()
        answer = self.answers.popleft()
        if isinstance(answer, OrtooError):
            raise answer
        return answer

    async def describe_queues(self, topic_id: int) -> list[QueueRange]:
        """The ranges."""
        assert topic_id == 77
        return self.ranges

    async def find_offset(self, topic_id: int, queue_id: int, stored_at_ms: int) -> int:
        """A lock table that records requests."""
        assert (topic_id, queue_id) == (77, 2)
        return stored_at_ms + 1


class Client:
    """The receiver of a feeder; the test can make it refuse deliveries."""

    def __init__(self) -> None:
        self.got: list[Delivery] = []
        self.takes = asyncio.Event()
        self.takes.set()
        self.stops_after = 0
        """Number of deliveries after which it refuses more until it is resumed; 0 = unlimited."""
        self.held: list[int] = []
        """The memory held at each wait for credit."""
        self.share: MemoryShare

    async def wait_until_sendable(self, queue: Queue) -> None:
        """Wait until it accepts deliveries."""
        assert queue in (QUEUE, RETRY)
        self.held.append(self.share.bytes)
        await self.takes.wait()

    async def on_started(self, feeder: Feeder, interruption: Interruption | None) -> None:
        """No earlier session was interrupted."""
        assert interruption is None

    def send(self, delivery: Delivery) -> None:
        """A delivery arrived."""
        self.got.append(delivery)
        if len(self.got) == self.stops_after:
            self.takes.clear()


class Locks:
    """Holds are granted at once, with one generation."""

    def __init__(self, generation: int) -> None:
        self.generation = generation

    async def acquire(self, enode: str, request: LockRequest) -> int:
        """The generation."""
        assert (enode, request) == ("e", LOCK)
        return self.generation


class Feed:
    """A feeder between the two."""

    def __init__(
        self, it: Bench, script: Script, answers: Iterable[FetchedBatches | OrtooError] = (), **chosen: Any
    ) -> None:
        self.enode, self.client = script, Client()
        self.enode.answers.extend(answers)
        self.it = it
        self.enode.share = self.client.share = it.memory.share("Push")
        is_broadcast = chosen.pop("broadcast", False)
        locks: Any = Locks(chosen.pop("fence", 6))
        self.feeder = Feeder(
            dataclasses.replace(it.parts, locks=locks),
            QueueCursor(chosen.pop("queue", QUEUE), 9),
            77,
            "g",
            chosen.pop("message_filter", None),
            self.client.wait_until_sendable,
            self.client.send,
            chosen.pop("start", SessionStart(StartFrom.FIRST)),
            None if is_broadcast else LOCK,
            lambda: BYTES_MAX,
            9,
            self.client.share,
            QueueStarts(it.parts.links, it.parts.background, QUEUE.enode, 77, "g"),
            self.client.on_started,
        )
        assert not chosen
        self.cursor = self.feeder.cursor

    async def run(self, seconds: float = 60.0) -> list[Delivery]:
        """The deliveries within this time."""
        feeding = self.it.parts.background.start_future("feed", self.feeder.run())
        await asyncio.wait([feeding], timeout=seconds)
        if feeding.done():
            feeding.result()
        feeding.cancel()
        return self.client.got


@contextlib.asynccontextmanager
async def script() -> AsyncIterator[tuple[Bench, Script]]:
    """A bench over a scripted enode."""
    enode = Script()
    async with bench(enode) as it:
        yield it, enode


def stored(first_offset: int, *tags: str, expire_at_ms: int | None = None) -> StoredBatch:
    """Messages with these tags, of which those with tag x expire."""
    messages = [Message(b"m" * 100, tag, expire_at_ms=expire_at_ms if tag == "x" else None) for tag in tags]
    return StoredBatch(first_offset, 1_000 + first_offset, encode(messages, now_ms=1))


def fetched(*batches: StoredBatch, end_offset: int = 0) -> FetchedBatches:
    """These batches, and the end of the queue."""
    return FetchedBatches(batches, batches[-1].next_offset, max(end_offset, batches[-1].next_offset))


def whole(one: StoredBatch) -> Delivery:
    """The delivery of a batch without a filter."""
    return Delivery(QUEUE, 9, 77, one.first_offset, one.next_offset, one.stored_at_ms, one.batch, b"", one.batch.count)


def told(first_offset: int, next_offset: int, loss: DataLoss | None = None) -> Delivery:
    """A delivery of only an offset."""
    return Delivery(QUEUE, 9, 77, first_offset, next_offset, loss=loss)
