"""One enode in this process, without a name server: real gRPC, a real store, topics given by the test."""

import contextlib
import dataclasses
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from ortoo.common.grpc.channels import Channels
from ortoo.common.process.clock import Clock
from ortoo.common.records.sealed_batch import SealedBatch
from ortoo.enode.app import RunningEnode, open_enode
from ortoo.enode.disk.disk import Disk
from ortoo.enode.log.settings import StoreSettings
from ortoo.enode.settings import EnodeSettings
from ortoo.v1 import enode_pb2, enode_pb2_grpc, namesrv_pb2, record_pb2, topic_pb2
from ortoo.verification.servers.ports import free_address

NO_NAME_SERVER = "127.0.0.1:1"
SMALL_STORE = StoreSettings(segment_bytes=4 << 20, headroom_bytes=0)


@dataclasses.dataclass(frozen=True, slots=True)
class SingleEnode:
    """The enode and a way to talk to it."""

    running: RunningEnode
    stub: enode_pb2_grpc.EnodeServiceStub
    channels: Channels

    async def set_topics(self, *topics: topic_pb2.Topic, deleted: tuple[str, ...] = (), **fields: Any) -> None:
        """Announce topics to it as the name server's watch would."""
        news = namesrv_pb2.WatchRoutesResponse(topics=topics, deleted_topics=deleted, **fields)
        await self.running.topics.apply(news)


@contextlib.asynccontextmanager
async def open_single_enode(
    folder: Path,
    *topics: topic_pb2.Topic,
    store: StoreSettings = SMALL_STORE,
    clock: Clock | None = None,
    disk: Disk | None = None,
    **settings: Any,
) -> AsyncIterator[SingleEnode]:
    """Open an enode in `folder` that has `topics`."""
    settings = {"namesrv_address": NO_NAME_SERVER} | settings
    chosen = EnodeSettings(listen_address=free_address(), data_dir=folder, store=store, **settings)
    async with Channels() as channels, open_enode(chosen, clock=clock, disk=disk) as running:
        enode = SingleEnode(running, enode_pb2_grpc.EnodeServiceStub(channels.channel_to(running.address)), channels)
        if topics:
            await enode.set_topics(*topics)
        yield enode


def topic(
    topic_id: int, name: str = "", *, queues: int = 4, version: int = 1, enode: str = "enode-0"
) -> topic_pb2.Topic:
    """A topic placed on one enode."""
    placement = topic_pb2.Placement(enode=enode, read_queue_count=queues, write_queue_count=queues)
    return topic_pb2.Topic(name=name or f"topic-{topic_id}", topic_id=topic_id, version=version, placements=[placement])


def wire(batch: SealedBatch) -> record_pb2.SealedBatch:
    """A batch as a protobuf message."""
    return record_pb2.SealedBatch(**dataclasses.asdict(batch))


def append_request(request_id: int, topic_id: int, queue_id: int, batch: SealedBatch) -> enode_pb2.AppendRequest:
    """A request to store `batch`."""
    return enode_pb2.AppendRequest(request_id=request_id, topic_id=topic_id, queue_id=queue_id, batch=wire(batch))


async def append_batches(address: str, topic_id: int, batch: SealedBatch, count: int, queue_id: int = 0) -> list[int]:
    """Append a batch `count` times to one queue, one after another; returns the offsets."""
    async with Channels() as channels:
        call = enode_pb2_grpc.EnodeServiceStub(channels.channel_to(address)).Append()
        offsets = []
        for number in range(count):
            await call.write(append_request(number, topic_id, queue_id, batch))
            answer = await call.read()
            assert isinstance(answer, enode_pb2.AppendResponse)
            assert not answer.HasField("failure"), answer.failure
            offsets.append(answer.first_offset)
    return offsets


async def stored_batches(address: str, topic_id: int) -> list[enode_pb2.StoredBatch]:
    """Everything in queue 0."""
    found: list[enode_pb2.StoredBatch] = []
    async with Channels() as channels:
        call = enode_pb2_grpc.EnodeServiceStub(channels.channel_to(address)).FetchBatches()
        offset = 0
        while True:
            await call.write(enode_pb2.FetchBatchesRequest(topic_id=topic_id, from_offset=offset))
            answer = await call.read()
            assert isinstance(answer, enode_pb2.FetchBatchesResponse)
            assert not answer.HasField("failure"), answer.failure
            if not answer.batches:
                return found
            found += answer.batches
            offset = answer.next_offset
