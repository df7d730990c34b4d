"""More unread push sessions and tails than the snode has memory for; others are served, and its memory is bounded.

python -m tests.e2e.unread_sessions --sessions 10000 --tails 200 --budget-mib 512
"""

import argparse
import asyncio
import contextlib
import json
import sys
import tempfile
from collections.abc import AsyncIterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import grpc

from ortoo.common.grpc.channels import Channels
from ortoo.common.logs import logger as logs
from ortoo.common.process.background import Background
from ortoo.common.process.clock import SystemClock
from ortoo.v1 import (
    admin_pb2,
    admin_pb2_grpc,
    consumer_pb2,
    consumer_pb2_grpc,
    namesrv_pb2,
    producer_pb2,
    producer_pb2_grpc,
    record_pb2,
)
from ortoo.verification.servers.processes import ProcessCluster, process_cluster
from tests.e2e.drill import run_drill
from tests.e2e.many_sessions import memory_bytes

FLOOD, CALM = "flood", "calm"
BODY_BYTES, STORED = 512 << 10, 48
QUEUES = 8
SENT, SENT_BYTES = 100, 64 << 10
"""The messages that an honest session must get while the others do not read."""
CALLS_A_CHANNEL = 50
CREDIT = consumer_pb2.PushRequest(credit=consumer_pb2.Credit(messages=1 << 30, bytes=1 << 40))


@dataclass(frozen=True, slots=True)
class UnreadSessions:
    """The results."""

    sessions: int
    refused: int
    """Number of sessions that were not opened: the snode answered Overloaded."""
    tails: int
    before_bytes: int
    largest_bytes: int
    """The snode's largest resident memory."""
    received: int
    """Messages that the honest session received, of `SENT`."""


async def _unread_push(channel: grpc.aio.Channel, number: int) -> Any:
    """A session that reads nothing after its first answer; None when it was refused."""
    call: Any = consumer_pb2_grpc.ConsumerServiceStub(channel).Push()
    opening = consumer_pb2.OpenSession(
        group=f"unread-{number % 50}",
        client_id=f"c{number:05}",
        message_model=consumer_pb2.MESSAGE_MODEL_BROADCAST,
        subscriptions=[consumer_pb2.Subscription(topic=FLOOD)],
        start_from=consumer_pb2.START_FROM_FIRST,
    )
    try:
        await call.write(consumer_pb2.PushRequest(open=opening))
        if await call.read() is grpc.aio.EOF:
            return None
        await call.write(CREDIT)
    except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
        return None
    return call


def _tail(channel: grpc.aio.Channel) -> Any:
    """A tail that is never read."""
    return admin_pb2_grpc.AdminServiceStub(channel).Tail(admin_pb2.TailRequest(topic=FLOOD, from_beginning=True))


async def _publish(stub: producer_pb2_grpc.ProducerServiceStub, topic: str, body: bytes, count: int) -> None:
    for _ in range(count):
        await stub.Publish(producer_pb2.PublishRequest(topic=topic, messages=[record_pb2.Message(body=body)]))


async def _honest(call: Any) -> int:
    """Read all messages; return their number."""
    received = 0
    while received < SENT:
        event = await call.read()
        if event is grpc.aio.EOF or event.HasField("closed"):
            break
        received += event.delivery.next_offset - event.delivery.first_offset
    return received


@contextlib.asynccontextmanager
async def _channels(address: str, calls: int) -> AsyncIterator[list[grpc.aio.Channel]]:
    """Connections of their own: calls on one connection share its window."""
    options = [("grpc.use_local_subchannel_pool", 1)]
    async with contextlib.AsyncExitStack() as stack:
        count = calls // CALLS_A_CHANNEL + 1
        yield [
            await stack.enter_async_context(grpc.aio.insecure_channel(address, options=options)) for _ in range(count)
        ]


async def besiege(cluster: ProcessCluster, *, sessions: int, tails: int) -> UnreadSessions:
    """Run it against a cluster's snode."""
    clock, pid = SystemClock(), cluster.snode.pid
    async with (
        Channels() as own,
        Background("siege") as background,
        _channels(cluster.address, sessions + tails) as channels,
    ):
        admin = admin_pb2_grpc.AdminServiceStub(own.channel_to(cluster.address))
        for topic, queues in ((FLOOD, QUEUES), (CALM, 1)):
            await admin.CreateTopic(namesrv_pb2.CreateTopicRequest(name=topic, read_queue_count=queues))
        producing = producer_pb2_grpc.ProducerServiceStub(own.channel_to(cluster.address))
        await _publish(producing, FLOOD, bytes(BODY_BYTES), STORED)
        largest = before = memory_bytes(pid)

        async def watch() -> None:
            nonlocal largest
            while True:
                largest = max(largest, memory_bytes(pid))
                await clock.sleep(0.05)

        watching = background.spawn("watch", watch())
        honest: Any = consumer_pb2_grpc.ConsumerServiceStub(own.channel_to(cluster.address)).Push()
        calm = [consumer_pb2.Subscription(topic=CALM)]
        opening = consumer_pb2.OpenSession(group="honest", subscriptions=calm, start_from=consumer_pb2.START_FROM_FIRST)
        await honest.write(consumer_pb2.PushRequest(open=opening))
        await honest.write(CREDIT)
        background.every("heartbeat", 5.0, lambda: honest.write(CREDIT), clock=clock)
        reading = background.spawn("honest", _honest(honest))
        tailing = [_tail(channels[number % len(channels)]) for number in range(tails)]
        opened: list[Any] = []
        for first in range(0, sessions, 100):
            numbers = range(first, min(sessions, first + 100))
            opened += await asyncio.gather(*(_unread_push(channels[one % len(channels)], one) for one in numbers))
        await _publish(producing, CALM, bytes(SENT_BYTES), SENT)
        received = await reading
        watching.cancel()
        for call in (*tailing, honest, *filter(None, opened)):
            call.cancel()
        return UnreadSessions(sessions, opened.count(None), tails, before, largest, received)


async def unread_sessions(folder: Path, *, sessions: int, tails: int, budget_bytes: int) -> UnreadSessions:
    """Run it with a cluster of its own."""
    environ = {"snode": {"LOG_LEVEL": "warning", "MEMORY_BUDGET_BYTES": budget_bytes}}
    async with process_cluster(folder, environ=environ) as cluster:
        try:
            return await besiege(cluster, sessions=sessions, tails=tails)
        except Exception as error:
            error.add_note(cluster.logs())
            raise


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sessions", type=int, default=10_000)
    parser.add_argument("--tails", type=int, default=200)
    parser.add_argument("--budget-mib", type=int, default=512)
    parser.add_argument("--most-mib", type=int, default=640)
    asked = parser.parse_args()
    logs.configure(level="error")
    with tempfile.TemporaryDirectory() as folder:
        seen = run_drill(
            unread_sessions(
                Path(folder), sessions=asked.sessions, tails=asked.tails, budget_bytes=asked.budget_mib << 20
            )
        )
    sys.stdout.write(json.dumps(asdict(seen)) + "\n")
    sys.exit(seen.largest_bytes > asked.most_mib << 20 or seen.received < SENT)


if __name__ == "__main__":
    main()
